// The three products of a linear layer without bias, y = x w^T: gemm in three layouts.
#pragma once

#include "blocks/block.hpp"

namespace kiln::bench {

/// Rows that may be parts of wider ones.
struct Rows {
  const Bf16* at;
  std::int64_t stride;  // elements
};

/// w is [outputs, inputs]. Rows of x and y vary from call to call; gemm's m is cut into buckets, so few of their numbers are tuned for.
class Linear {
 public:
  Linear(const Engines& engines, std::int64_t outputs, std::int64_t inputs)
      : gemm_(engines.tuned.op("gemm")),
        weight_gemm_(engines.for_weights.op("gemm")),
        outputs_(outputs),
        inputs_(inputs) {}

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
  /// dw = dy^T x, whose k is the number of rows. gemm's k is exact, so each number would be a bucket with a tune of its own. This
  /// engine's policy is `nearest`: the model chooses, and nothing is tuned.
  void weight_gradient(std::int64_t rows, Rows dy, Rows x, const Bf16* dw, Stream stream) const {
    launch(weight_gemm_, {{"m", outputs_}, {"n", inputs_}, {"k", rows}, {"dtype", "bf16"}, {"layout", "tn"}},
           {{"x", dy.at}, {"w", x.at}, {"y", dw}, {"x_stride", dy.stride}, {"w_stride", x.stride}}, stream);
  }

 private:
  Op gemm_, weight_gemm_;
  std::int64_t outputs_, inputs_;
};

}  // namespace kiln::bench
