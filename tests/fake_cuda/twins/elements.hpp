// Element types on the host: what templates/common/types.cuh has on the device.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "driver/errors.hpp"

namespace fake_cuda {

/// A float of 1 + exponent + mantissa bits. `finite` ones saturate, as e4m3 and e5m2 conversions do; `has_infinity` is false for e4m3.
template <typename Bits, int exponent_bits, int mantissa_bits, bool saturates, bool has_infinity>
struct SmallFloat {
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int exponent_mask = (1 << exponent_bits) - 1;
  static constexpr int mantissa_mask = (1 << mantissa_bits) - 1;
  static constexpr int nan_bits = exponent_mask << mantissa_bits | mantissa_mask;
  static constexpr int infinity_bits = exponent_mask << mantissa_bits;
  static constexpr int largest_bits = has_infinity ? infinity_bits - 1 : nan_bits - 1;

  Bits bits;

  static SmallFloat from(double value) {
    const int sign = std::signbit(value) ? 1 << (exponent_bits + mantissa_bits) : 0;
    return {static_cast<Bits>(sign | magnitude_bits(std::fabs(value)))};
  }

  [[nodiscard]] double to() const {
    const int exponent = bits >> mantissa_bits & exponent_mask;
    const int mantissa = bits & mantissa_mask;
    const double sign = bits >> (exponent_bits + mantissa_bits) != 0 ? -1 : 1;
    if (has_infinity && exponent == exponent_mask) {
      return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    }
    if (!has_infinity && (bits & nan_bits) == nan_bits) return std::numeric_limits<double>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * std::ldexp(mantissa + mantissa_mask + 1, exponent - bias - mantissa_bits);
  }

 private:
  static int magnitude_bits(double value) {
    if (std::isnan(value)) return nan_bits;
    if (value == 0) return 0;  // frexp gives it no exponent to be measured by
    const int overflow = saturates ? largest_bits : infinity_bits;
    if (std::isinf(value)) return overflow;
    int exponent = 0;
    std::frexp(value, &exponent);
    exponent = std::max(exponent - 1, 1 - bias);  // subnormals share the least exponent
    const auto units = static_cast<std::int64_t>(std::nearbyint(std::ldexp(value, mantissa_bits - exponent)));
    // A carry out of the mantissa raises the exponent by itself, and so does leaving the subnormals.
    const std::int64_t magnitude = (static_cast<std::int64_t>(exponent + bias - 1) << mantissa_bits) + units;
    return magnitude > largest_bits ? overflow : static_cast<int>(magnitude);
  }
};

using Bf16 = SmallFloat<std::uint16_t, 8, 7, false, true>;
using F16 = SmallFloat<std::uint16_t, 5, 10, false, true>;
using E4m3 = SmallFloat<std::uint8_t, 4, 3, true, false>;
using E5m2 = SmallFloat<std::uint8_t, 5, 2, true, true>;

template <typename T>
double to_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
  } else {
    return value.to();
  }
}

template <typename T>
T from_double(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T::from(value);
  }
}

/// Calls visit(T{}) for the type that a demangled name spells. Throws Failure(CUDA_ERROR_LAUNCH_FAILED) for no element type.
template <typename Visit>
auto with_element(std::string_view type, Visit visit) {
  if (type == "kiln::bf16") return visit(Bf16{});
  if (type == "kiln::f16") return visit(F16{});
  if (type == "float") return visit(float{});
  if (type == "double") return visit(double{});
  if (type == "kiln::e4m3") return visit(E4m3{});
  if (type == "kiln::e5m2") return visit(E5m2{});
  if (type == "signed char") return visit(static_cast<signed char>(0));
  if (type == "unsigned char") return visit(static_cast<unsigned char>(0));
  if (type == "int") return visit(int{});
  if (type == "long long") return visit(static_cast<long long>(0));
  throw Failure{CUDA_ERROR_LAUNCH_FAILED};
}

}  // namespace fake_cuda
