// Operands and results of kernels under test.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "common/types.cuh"
#include "ptx/formats.hpp"

namespace test {

template <typename T>
T nan_of() {
  if constexpr (std::is_floating_point_v<T>) {
    return std::numeric_limits<T>::quiet_NaN();
  } else {
    T value;
    value.bits = static_cast<decltype(value.bits)>(-1);
    return value;
  }
}

/// As a double; not by kiln::to_double, which the emulator has to run.
template <typename T>
double number_of(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_same_v<T, kiln::bf16>) {
    return emulator::detail::decode<fake_cuda::Bf16>(value.bits);
  } else if constexpr (std::is_same_v<T, kiln::f16>) {
    return emulator::detail::decode<fake_cuda::F16>(value.bits);
  } else if constexpr (std::is_same_v<T, kiln::e4m3>) {
    return emulator::detail::decode<fake_cuda::E4m3>(value.bits);
  } else {
    return emulator::detail::decode<fake_cuda::E5m2>(value.bits);
  }
}

/// Rows that are `stride` elements apart, among NaN: before, between and behind them.
template <typename T>
class Matrix {
 public:
  static constexpr std::int64_t margin = 64;

  Matrix(std::int64_t rows, std::int64_t columns, std::int64_t stride)
      : rows_(rows),
        columns_(columns),
        stride_(stride),
        elements_(static_cast<std::size_t>(rows * stride + 2 * margin), nan_of<T>()) {}
  /// Of small multiples of 1 / 8, so that sums of products are exact in float.
  static Matrix random(std::int64_t rows, std::int64_t columns, std::int64_t stride, std::uint32_t seed) {
    Matrix made(rows, columns, stride);
    std::minstd_rand random(seed);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column)
        made.at(row, column) = kiln::from_float<T>((static_cast<float>(random() >> 8 & 15) - 8) / 8);
    }
    return made;
  }

  T* data() { return elements_.data() + margin; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] std::int64_t stride() const { return stride_; }
  T& at(std::int64_t row, std::int64_t column) { return data()[row * stride_ + column]; }
  double value(std::int64_t row, std::int64_t column) { return number_of(at(row, column)); }

  /// What lies outside of the rows is as it was.
  [[nodiscard]] bool margins_untouched() const {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(elements_.size()); ++i) {
      const std::int64_t at = i - margin;
      if (at >= 0 && at < rows_ * stride_ && at % stride_ < columns_) continue;
      if (!std::isnan(number_of(elements_[static_cast<std::size_t>(i)]))) return false;
    }
    return true;
  }

 private:
  std::int64_t rows_, columns_, stride_;
  std::vector<T> elements_;
};

/// |a - b| where b is right: infinite where a is NaN.
inline double distance(double a, double b) {
  return std::isnan(a) ? std::numeric_limits<double>::infinity() : std::fabs(a - b);
}

}  // namespace test
