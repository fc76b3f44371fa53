// The three products of a linear layer without bias, y = x w^T: gemm in three layouts.
#pragma once

#include "blocks/block.hpp"

namespace kiln::bench {

/// Rows that may be parts of wider ones.
struct Rows {
  const Bf16* at;
  std::int64_t stride;  // elements
};

/// w is [outputs, inputs]. Rows of x and y vary from call to call. They are gemm's m, or its k of a weight's gradient, and few of their
/// numbers are tuned for: both are cut into buckets.
class Linear {
 public:
  Linear(const Engine& engine, std::int64_t outputs, std::int64_t inputs)
      : gemm_(engine.op("gemm")), outputs_(outputs), inputs_(inputs) {}

  /// y = x w^T
  void operator()(std::int64_t rows, Rows x, const Bf16* w, Rows y, Stream stream) const {
    launch(gemm_, {{"m", rows}, {"n", outputs_}, {"k", inputs_}, {"dtype", "bf16"}, {"layout", "nt"}},
           {{"x", x.at}, {"w", w}, {"y", y.at}, {"x_stride", x.stride}, {"y_stride", y.stride}}, stream);
  }
  /// y = x w^T + residual, the residual's rows as long as y's
  void add(std::int64_t rows, Rows x, const Bf16* w, const Bf16* residual, const Bf16* y, Stream stream) const {
    launch(gemm_,
           {{"m", rows}, {"n", outputs_}, {"k", inputs_}, {"dtype", "bf16"}, {"layout", "nt"}, {"residual", "add"}},
           {{"x", x.at}, {"w", w}, {"y", y}, {"residual_in", residual}, {"x_stride", x.stride}}, stream);
  }
  /// y = activation(x w^T)
  void activated(std::string_view activation, std::int64_t rows, Rows x, const Bf16* w, Rows y, Stream stream) const {
    launch(
        gemm_,
        {{"m", rows}, {"n", outputs_}, {"k", inputs_}, {"dtype", "bf16"}, {"layout", "nt"}, {"activation", activation}},
        {{"x", x.at}, {"w", w}, {"y", y.at}, {"x_stride", x.stride}, {"y_stride", y.stride}}, stream);
  }
  /// dx = dy w, or dx += dy w
  void input_gradient(std::int64_t rows, Rows dy, const Bf16* w, Rows dx, Stream stream,
                      std::string_view accumulate = "no") const {
    launch(
        gemm_,
        {{"m", rows}, {"n", inputs_}, {"k", outputs_}, {"dtype", "bf16"}, {"layout", "nn"}, {"accumulate", accumulate}},
        {{"x", dy.at}, {"w", w}, {"y", dx.at}, {"x_stride", dy.stride}, {"y_stride", dx.stride}}, stream);
  }
  /// dw = dy^T x, whose k is the number of rows
  void weight_gradient(std::int64_t rows, Rows dy, Rows x, const Bf16* dw, Stream stream) const {
    launch(gemm_, {{"m", outputs_}, {"n", inputs_}, {"k", rows}, {"dtype", "bf16"}, {"layout", "tn"}},
           {{"x", dy.at}, {"w", x.at}, {"y", dw}, {"x_stride", dy.stride}, {"w_stride", x.stride}}, stream);
  }

 private:
  Op gemm_;
  std::int64_t outputs_, inputs_;
};

}  // namespace kiln::bench
