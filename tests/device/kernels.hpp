// What tests of kernels have in common.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/length.cuh"
#include "emulator/launch.hpp"
#include "matrices.hpp"

namespace test {

inline constexpr std::uint32_t seeds[] = {0, 1, 2, 3};

/// As a launch gives it, or held on the device.
inline kiln::axis_length length(std::int64_t bound, const int* on_device = nullptr) {
  return {on_device, nullptr, static_cast<int>(bound), 0};
}

/// The largest distance of y from what `right(row, column)` says, in its first `rows` rows; infinite if the others, or anything beside
/// the rows, was written to.
template <typename T, typename Right>
double error_of(Matrix<T>& y, std::int64_t rows, Right right) {
  double largest = y.margins_untouched() ? 0 : INFINITY;
  for (std::int64_t row = 0; row < y.rows(); ++row) {
    for (std::int64_t column = 0; column < y.columns(); ++column) {
      const double value = y.value(row, column);
      largest = std::max(largest, row < rows ? distance(value, right(row, column)) : std::isnan(value) ? 0 : INFINITY);
    }
  }
  return largest;
}

}  // namespace test
