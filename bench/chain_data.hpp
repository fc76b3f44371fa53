// The chain of bench_chain, its tensors, and the float64 chain on the host that it is compared with.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "kiln/kiln.hpp"

namespace kiln::bench {

inline constexpr std::int64_t hidden = 4096;
inline constexpr std::array<std::int64_t, 2> widths = {4096, 1024};
inline constexpr double epsilon = 1e-6;

/// To nearest, ties to even, as the kernels store.
inline std::uint16_t to_bf16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
inline double from_bf16(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}
inline double rounded(double value) { return from_bf16(to_bf16(value)); }

/// x [rows, hidden], weight [hidden], w [n, hidden]; h, s, y: what the ops write.
class ChainData {
 public:
  explicit ChainData(const std::vector<std::int64_t>& rows)
      : most_rows_(*std::max_element(rows.begin(), rows.end())),
        host_x_(normal(most_rows_ * hidden, 1, 1)),
        host_weight_(normal(hidden, 1, 2)),
        host_w_(normal(widths.front() * hidden, 1 / std::sqrt(static_cast<double>(hidden)), 3)),
        x(upload(host_x_)),
        weight(upload(host_weight_)),
        w(upload(host_w_)),
        h(2 * most_rows_ * hidden),
        s(2 * most_rows_ * widths.front()),
        y(2 * most_rows_ * widths.front()) {}

  void poison(CUstream stream) const {
    for (const cuda::Buffer* each : {&h, &s, &y}) each->fill_bytes(0xff, stream);
  }

  /// The largest relative error of y in some rows. Throws Error(wrong_result) past the tolerance. h and s are rounded on the way as they are
  /// on the device; what differs in float32 may then round to the neighbour, which is 2^-8 of a logit, and so of y where the logit is 4.
  double verify(std::int64_t rows, std::int64_t n, CUstream stream, const std::string& who) const {
    constexpr double tolerance = 0.04;
    cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "cuStreamSynchronize");
    std::vector<std::uint16_t> got(static_cast<std::size_t>(rows * n));
    y.copy_to_host(got.data(), rows * n * 2);
    double worst = 0;
    for (const std::int64_t row : std::set<std::int64_t>{0, 1 % rows, rows / 2, rows - 1}) {
      const std::vector<double> wanted = row_of(row, n);
      for (std::int64_t i = 0; i < n; ++i) {
        const double exact = wanted[static_cast<std::size_t>(i)];
        const double error = std::abs(from_bf16(got[static_cast<std::size_t>(row * n + i)]) - exact) / exact;
        if (!(error <= tolerance))
          throw Error(ErrorKind::wrong_result,
                      fmt::format("{}: rows={} n={}: y[{},{}] is {}, expected {}", who, rows, n, row, i,
                                  from_bf16(got[static_cast<std::size_t>(row * n + i)]), exact));
        worst = std::max(worst, error);
      }
    }
    return worst;
  }

 private:
  static std::vector<std::uint16_t> normal(std::int64_t count, double scale, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> draw(0, scale);
    std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
    for (std::uint16_t& each : values) each = to_bf16(draw(random));
    return values;
  }
  static cuda::Buffer upload(const std::vector<std::uint16_t>& values) {
    const auto bytes = static_cast<std::int64_t>(2 * values.size());
    cuda::Buffer buffer(bytes);
    buffer.copy_from_host(values.data(), bytes);
    return buffer;
  }

  /// A row of the chain in float64.
  [[nodiscard]] std::vector<double> row_of(std::int64_t row, std::int64_t n) const {
    const std::uint16_t* in = host_x_.data() + row * hidden;
    double squares = 0;
    for (std::int64_t i = 0; i < hidden; ++i) squares += from_bf16(in[i]) * from_bf16(in[i]);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(hidden) + epsilon);
    std::vector<double> normed(static_cast<std::size_t>(hidden)), out(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < normed.size(); ++i)
      normed[i] = rounded(from_bf16(in[i]) * scale * from_bf16(host_weight_[i]));
    double sum = 0;
    for (std::size_t j = 0; j < out.size(); ++j) {
      const std::uint16_t* column = host_w_.data() + j * normed.size();
      double logit = 0;
      for (std::size_t i = 0; i < normed.size(); ++i) logit += normed[i] * from_bf16(column[i]);
      out[j] = std::exp(rounded(logit));
      sum += out[j];
    }
    for (double& each : out) each /= sum;
    return out;
  }

  std::int64_t most_rows_;
  std::vector<std::uint16_t> host_x_, host_weight_, host_w_;

 public:
  cuda::Buffer x, weight, w, h, s, y;
};

/// The three ops at one size, ready to be launched and captured on a stream.
class Chain {
 public:
  Chain(const Engine& engine, const ChainData& data, std::int64_t rows, std::int64_t n, CUstream stream) {
    const auto at = [](const cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); };
    add(engine.op("rms_norm"), {{"rows", rows}, {"cols", hidden}, {"dtype", "bf16"}},
        {{"x", at(data.x)}, {"weight", at(data.weight)}, {"y", at(data.h)}, {"epsilon", epsilon}}, stream);
    add(engine.op("gemm"), {{"m", rows}, {"n", n}, {"k", hidden}, {"dtype", "bf16"}, {"layout", "nt"}},
        {{"x", at(data.h)}, {"w", at(data.w)}, {"y", at(data.s)}}, stream);
    add(engine.op("softmax"), {{"rows", rows}, {"cols", n}, {"dtype", "bf16"}}, {{"x", at(data.s)}, {"y", at(data.y)}},
        stream);
  }
  void launch(CUstream stream) const {
    for (const Step& step : steps_) step.op.launch(step.problem, step.arguments, stream);
  }
  [[nodiscard]] const std::string& configs() const noexcept { return configs_; }

 private:
  struct Step {
    Op op;
    Problem problem;
    Arguments arguments;
  };
  void add(Op op, std::initializer_list<Op::Setting> settings, std::initializer_list<Op::Argument> arguments,
           CUstream stream) {
    const Problem problem = op.problem(settings);
    const Plan plan = op.plan(problem, stream);
    configs_ +=
        fmt::format("{}{} {} {}", configs_.empty() ? "" : "; ", op.name(), plan.implementation(), plan.config());
    const Arguments given = op.arguments(arguments);
    steps_.push_back({std::move(op), problem, given});
  }
  std::vector<Step> steps_;
  std::string configs_;
};

}  // namespace kiln::bench
