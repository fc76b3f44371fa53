// Operands with infinities, NaN and subnormal numbers, and what a product makes of them.
#pragma once

#include <cmath>
#include <limits>

#include "fused.hpp"

namespace test {

/// How far the sums of a product may be from right, as a part of the sum of their terms' magnitudes.
template <typename T>
inline constexpr double cut_off = sizeof(T) == 1 ? 0x1p-10 : 0x1p-14;

/// Elements of y that are not what double arithmetic gives: a NaN, an infinity of the right sign, or a number near the right one.
template <typename T>
std::int64_t wrong_sums(FusedProduct<T, Ends<float>>& of) {
  std::int64_t wrong = 0;
  for (std::int64_t row = 0; row < of.m; ++row)
    for (std::int64_t column = 0; column < of.n; ++column) {
      double right = 0, magnitude = 0;
      for (std::int64_t i = 0; i < of.k; ++i) {
        const double term = of.x.value(row, i) * of.w.value(column, i);
        right += term;
        magnitude += std::fabs(term);
      }
      const double got = of.y.value(row, column);
      const bool is_right = std::isnan(right)   ? std::isnan(got)
                            : std::isinf(right) ? got == right
                                                : std::fabs(got - right) <= cut_off<T> * magnitude;
      wrong += is_right ? 0 : 1;
    }
  return wrong;
}

/// Infinities of both signs at both ends of k, alone, against each other and against a zero, and NaN. A type without infinities
/// takes its largest number for them.
template <class Kernel, typename T>
std::int64_t wrong_where_not_finite(std::int64_t m, std::int64_t n, std::int64_t k) {
  FusedProduct<T, Ends<float>> of(m, n, k);
  const T infinite = encoded<T>(INFINITY), negative = encoded<T>(-INFINITY);
  of.x.at(0, 3) = infinite;
  of.w.at(2, 3) = encoded<T>(0.0f);
  of.x.at(1, k - 1) = negative;
  of.x.at(2, 0) = nan_of<T>();
  of.x.at(m - 1, 5) = infinite;
  of.x.at(m - 1, k - 2) = negative;
  of.w.at(n - 1, k / 2) = infinite;
  of.w.at(n - 2, 1) = nan_of<T>();
  Kernel::run(of, 3);
  return wrong_sums(of);
}

enum class Side { x, w };

/// One side holds subnormal numbers alone; the other is large enough for sums that are normal in f32.
template <class Kernel, typename T>
std::int64_t wrong_where_subnormal(Side side, std::int64_t m, std::int64_t n, std::int64_t k) {
  FusedProduct<T, Ends<float>> of(m, n, k);
  std::minstd_rand random(9);
  const auto make_subnormal = [&](Matrix<T>& values) {
    constexpr unsigned fractions = kiln::is_same<T, kiln::f16> ? 1023 : kiln::is_same<T, kiln::bf16> ? 127 : 7;
    constexpr unsigned sign = 1u << (sizeof(T) * 8 - 1);
    for (std::int64_t row = 0; row < values.rows(); ++row)
      for (std::int64_t i = 0; i < k; ++i)
        values.at(row, i).bits =
            static_cast<decltype(T::bits)>(((random() >> 8) % fractions + 1) | (random() << 3 & sign));
  };
  const auto enlarge = [&](Matrix<T>& values) {
    const float factor = kiln::is_same<T, kiln::bf16> ? 0x1p100f : 1.0f;
    for (std::int64_t row = 0; row < values.rows(); ++row)
      for (std::int64_t i = 0; i < k; ++i)
        values.at(row, i) = encoded<T>(static_cast<float>(values.value(row, i)) * factor);
  };
  make_subnormal(side == Side::x ? of.x : of.w);
  enlarge(side == Side::x ? of.w : of.x);
  Kernel::run(of, 4);
  return wrong_sums(of);
}

}  // namespace test
