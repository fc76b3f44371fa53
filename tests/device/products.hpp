// Products with all that may follow them, as gemm and its like are asked for them, and what is right in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/gemm/choices.cuh"
#include "common/length.cuh"
#include "matrices.hpp"

namespace test {

using kiln::gemm::Accumulate;
using kiln::gemm::Activation;
using kiln::gemm::Layout;
using kiln::gemm::Residual;
using kiln::gemm::Scaling;

template <typename Out, Activation activation = Activation::none, Residual residual = Residual::none,
          Scaling scaling = Scaling::none, Accumulate accumulate = Accumulate::no>
using Ends = kiln::gemm::Ending<Out, activation, residual, scaling, accumulate>;

/// `batch` products of m rows, or one whose rows `offsets` cut into groups with a w of their own.
struct Sizes {
  std::int64_t m, n, k;
  std::int64_t batch = 1;
  std::vector<int> offsets = {};

  [[nodiscard]] std::int64_t weights() const { return offsets.empty() ? batch : std::ssize(offsets) - 1; }
};

/// A column of few powers of 2, so that products with them stay exact.
inline std::vector<float> scales(std::int64_t count, std::uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& each : made) each = 0.5f * static_cast<float>(1u << (random() >> 8 & 1u));
  return made;
}

/// Tensors of a product, row after row of all its parts; rows of x and w are `padding` elements longer than what they hold.
template <typename X, typename W, Layout layout, class Config>
struct Products {
  using Out = typename Config::out;
  static constexpr bool x_along_k = kiln::gemm::x_runs_along_k<layout>, w_along_k = kiln::gemm::w_runs_along_k<layout>;
  static constexpr bool by_block = Config::scaling == Scaling::block;

  Sizes of;
  std::int64_t x_rows, w_rows, width, k_blocks, x_scales, w_scales;  // of one product; scales of all of k, of one
  Matrix<X> x;
  Matrix<W> w;
  Matrix<Out> bias, residual, y, held;
  std::vector<float> x_scale, w_scale;
  float y_scale = 0.25f, scale = 0.5f;

  explicit Products(const Sizes& sizes, std::int64_t padding = 16)
      : of(sizes),
        x_rows(x_along_k ? of.m : of.k),
        w_rows(w_along_k ? of.n : of.k),
        width(of.n / Config::joined),
        k_blocks(by_block ? (of.k + 127) / 128 : 1),
        x_scales((Config::scaling == Scaling::tensor ? 1 : of.m) * k_blocks),
        w_scales((Config::scaling == Scaling::tensor ? 1
                  : by_block                         ? (of.n + 127) / 128
                                                     : of.n) *
                 k_blocks),
        x(Matrix<X>::random(of.batch * x_rows, of.m + of.k - x_rows, of.m + of.k - x_rows + padding, 1)),
        w(Matrix<W>::random(of.weights() * w_rows, of.n + of.k - w_rows, of.n + of.k - w_rows + padding, 2)),
        bias(Matrix<Out>::random(of.weights(), of.n, of.n, 3)),
        residual(Matrix<Out>::random(of.batch * of.m, width, (width + 31) / 16 * 16, 4)),
        y(made_of_y()),
        held(made_of_y()),
        x_scale(scales(of.batch * x_scales, 6)),
        w_scale(scales(of.weights() * w_scales, 7)) {}

  /// Which w a row of all rows meets; nothing for one of no group.
  [[nodiscard]] std::optional<std::int64_t> weight_of(std::int64_t row) const {
    if (of.offsets.empty()) return row / of.m;
    const auto after = std::upper_bound(of.offsets.begin(), of.offsets.end(), static_cast<int>(row));
    if (after == of.offsets.begin() || after == of.offsets.end()) return std::nullopt;
    return after - of.offsets.begin() - 1;
  }

  double z(std::int64_t row, std::int64_t weight, std::int64_t column) {
    double sum = 0;
    for (std::int64_t i = 0; i < of.k; ++i) {
      const std::int64_t part = row / of.m, inside = row % of.m;
      const double x_value = x_along_k ? x.value(row, i) : x.value(part * of.k + i, inside);
      const double w_value = w_along_k ? w.value(weight * of.n + column, i) : w.value(weight * of.k + i, column);
      double factor = 1;
      if constexpr (Config::scaling == Scaling::tensor)
        factor = scale_at(x_scale, of.offsets.empty() ? part : 0) * scale_at(w_scale, weight);
      if constexpr (Config::scaling == Scaling::row)
        factor = scale_at(x_scale, row) * scale_at(w_scale, weight * of.n + column);
      if constexpr (by_block)
        factor = scale_at(x_scale, row * k_blocks + i / 128) *
                 scale_at(w_scale, weight * w_scales + column / 128 * k_blocks + i / 128);
      sum += factor * x_value * w_value;
    }
    return static_cast<double>(scale) * sum + bias.value(weight, column);
  }

  static double activate(double value) {
    switch (Config::activation) {
      case Activation::relu: return std::max(value, 0.0);
      case Activation::gelu: return 0.5 * value * std::erfc(-value * 0.70710678118654752440);
      case Activation::silu:
      case Activation::swiglu: return value / (1 + std::exp(-value));
      default: return value;
    }
  }

  /// Before it is rounded; 8-bit results saturate.
  double wanted(std::int64_t row, std::int64_t weight, std::int64_t column) {
    double value = activate(z(row, weight, column * Config::joined));
    if constexpr (Config::activation == Activation::swiglu) value *= z(row, weight, column * 2 + 1);
    if constexpr (Config::residual == Residual::add) value += residual.value(row, column);
    const double unit = kiln::is_same<Out, kiln::e4m3> ? static_cast<double>(y_scale) : 1;
    if constexpr (Config::accumulate == Accumulate::yes) value += held.value(row, column) * unit;
    value /= unit;
    return kiln::is_same<Out, kiln::e4m3> ? std::clamp(value, -448.0, 448.0) : value;
  }

  /// The largest distance of what is in `got` from what is right, in halves of its last place (of f32, in a millionth); infinite where a row of no group, or
  /// what lies outside of rows, was written.
  template <typename T>
  double error_of(Matrix<T>& got) {
    const double half_place = sizeof(T) == 4                 ? 0x1p-20
                              : kiln::is_same<T, kiln::bf16> ? 0x1p-8
                              : sizeof(T) == 2               ? 0x1p-11
                                                             : 0x1p-4;
    const double least = sizeof(T) == 4 ? 1 : 0x1p-6;  // f32 loses what cancels
    double largest = got.margins_untouched() ? 0 : INFINITY;
    for (std::int64_t row = 0; row < of.batch * of.m; ++row) {
      const auto weight = weight_of(row);
      for (std::int64_t column = 0; column < width; ++column) {
        const bool kept = std::isnan(got.value(row, column)) || got.value(row, column) == held.value(row, column);
        const double right = weight ? wanted(row, *weight, column) : 0;
        const double error = weight ? distance(got.value(row, column), right) : kept ? 0 : INFINITY;
        largest = std::max(largest, error / (half_place * std::max(std::fabs(right), least)));
      }
    }
    return largest;
  }

  [[nodiscard]] kiln::axis_length rows() const { return {nullptr, nullptr, static_cast<int>(of.m), 0}; }

 private:
  static double scale_at(const std::vector<float>& from, std::int64_t i) {
    return static_cast<double>(from[static_cast<std::size_t>(i)]);
  }
  Matrix<Out> made_of_y() const {
    const std::int64_t stride = (width + 31) / 16 * 16;
    if (Config::accumulate == Accumulate::yes) return Matrix<Out>::random(of.batch * of.m, width, stride, 5);
    return Matrix<Out>(of.batch * of.m, width, stride);
  }
};

}  // namespace test
