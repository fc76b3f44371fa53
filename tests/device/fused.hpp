// Products whose sums round, and what follows them step by step in f32: what a kernel that does both at once gives bit for bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "common/gemm/choices.cuh"
#include "products.hpp"

namespace test {

/// Full mantissas, both signs: no sum of products is exact.
inline float draw(std::minstd_rand& random) {
  return static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) * 2 - 1;
}
template <typename T>
T encoded(float value) {
  if constexpr (std::is_same_v<T, float>) return value;
  T made{};
  if constexpr (std::is_same_v<T, kiln::bf16>) made.bits = fake_cuda::Bf16::from(value).bits;
  if constexpr (std::is_same_v<T, kiln::f16>) made.bits = fake_cuda::F16::from(value).bits;
  if constexpr (std::is_same_v<T, kiln::e4m3>) made.bits = fake_cuda::E4m3::from(value).bits;
  return made;
}
template <typename T>
Matrix<T> drawn(std::int64_t rows, std::int64_t columns, std::int64_t stride, std::uint32_t seed) {
  Matrix<T> made(rows, columns, stride);
  std::minstd_rand random(seed);
  for (std::int64_t i = 0; i < rows * columns; ++i) made.at(i / columns, i % columns) = encoded<T>(draw(random));
  return made;
}
inline std::vector<float> drawn_scales(std::int64_t count, std::uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& each : made) each = 1.5f + draw(random);
  return made;
}

/// y = x w^T and what Config says: all that a kernel is given. `follows` is false for the product alone.
template <typename T, class Config_>
struct FusedProduct {
  using Config = Config_;
  using Out = typename Config::out;
  static constexpr bool follows =
      Config::activation != Activation::none || Config::residual != Residual::none || Config::scaling != Scaling::none;

  std::int64_t m, n, k, width = n / Config::joined, y_stride = (width + 31) / 16 * 16;
  Matrix<T> x = drawn<T>(m, k, (k + 31) / 16 * 16, 1), w = drawn<T>(n, k, (k + 47) / 16 * 16, 2);
  Matrix<Out> bias_row = drawn<Out>(1, n, n, 3), residual = drawn<Out>(m, width, y_stride, 4),
              held = drawn<Out>(m, width, y_stride, 5), y = held;
  std::vector<float> x_scale = drawn_scales(m, 6), w_scale = drawn_scales(n, 7);
  float scale = follows ? 0.7f : 1.0f, y_scale = 0.3f;

  FusedProduct(std::int64_t rows, std::int64_t columns, std::int64_t depth) : m(rows), n(columns), k(depth) {}

  [[nodiscard]] const Out* bias() { return follows ? bias_row.data() : nullptr; }
  [[nodiscard]] kiln::axis_length rows() const { return {nullptr, nullptr, static_cast<int>(m), 0}; }

  /// The op's order, each step rounded to f32 and the last to Out. `sums` is the product alone.
  Out step_by_step(Matrix<float>& sums, std::int64_t row, std::int64_t column) {
    float value = 0;
    if constexpr (Config::activation == Activation::swiglu) {
      value = kiln::gemm::activate<Activation::silu>(z(sums, row, 2 * column)) * z(sums, row, 2 * column + 1);
    } else {
      value = kiln::gemm::activate<Config::activation>(z(sums, row, column));
    }
    if (Config::residual == Residual::add) value += number(residual, row, column);
    const float unit = kiln::is_same<Out, kiln::e4m3> ? y_scale : 1.0f;
    if (Config::accumulate == Accumulate::yes) value = std::fma(unit, number(held, row, column), value);
    if (kiln::is_same<Out, kiln::e4m3>) value *= 1.0f / unit;
    return encoded<Out>(value);
  }

  /// Elements of y in which a bit differs from that; all of them where anything else was written.
  std::int64_t different(Matrix<float>& sums) {
    if (!y.margins_untouched()) return m * width;
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < m * width; ++i) {
      const Out wanted = step_by_step(sums, i / width, i % width);
      count += std::memcmp(&wanted, &y.at(i / width, i % width), sizeof wanted) != 0;
    }
    return count;
  }

 private:
  static float number(Matrix<Out>& of, std::int64_t row, std::int64_t column) {
    return static_cast<float>(of.value(row, column));
  }
  float z(Matrix<float>& sums, std::int64_t row, std::int64_t column) {
    float factor = scale;
    if (Config::scaling == Scaling::tensor) factor = scale * (x_scale[0] * w_scale[0]);
    if (Config::scaling == Scaling::row)
      factor = scale * x_scale[static_cast<std::size_t>(row)] * w_scale[static_cast<std::size_t>(column)];
    return std::fma(factor, sums.at(row, column), follows ? number(bias_row, 0, column) : 0.0f);
  }
};

/// By the same kernel twice: with what follows, and without. `Kernel::run(product, seed)` launches it.
template <class Kernel, class Config, typename T = kiln::bf16>
std::int64_t different_bits(std::int64_t m, std::int64_t n, std::int64_t k) {
  FusedProduct<T, Ends<float>> alone(m, n, k);
  Kernel::run(alone, 1);
  FusedProduct<T, Config> fused(m, n, k);
  Kernel::run(fused, 2);
  return fused.different(alone.y);
}

/// Of several endings; 0 where every kernel gives the bits of its steps.
template <class Kernel, class... Endings>
std::int64_t different_bits_in_any(std::int64_t m, std::int64_t n, std::int64_t k) {
  return (different_bits<Kernel, Endings>(m, n, k) + ...);
}

// Endings of every type, choice and form of scale between them. In f32 each step's rounding shows, in fewer bits few do.
using EndInBf16 = Ends<kiln::bf16, Activation::relu, Residual::add, Scaling::row, Accumulate::yes>;
using EndInF16 = Ends<kiln::f16, Activation::gelu, Residual::add, Scaling::tensor>;
using EndInF32 = Ends<float, Activation::none, Residual::add, Scaling::none>;
using EndInPairs = Ends<float, Activation::swiglu, Residual::none, Scaling::row, Accumulate::yes>;
using EndInE4m3 = Ends<kiln::e4m3, Activation::silu, Residual::add, Scaling::row, Accumulate::yes>;

}  // namespace test
