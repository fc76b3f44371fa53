// What a launch is given besides its problem: device addresses and run-time values.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "kiln/problem.hpp"

namespace kiln {

/// Index of a tensor of one op, from Op::tensor.
struct TensorId {
  std::uint8_t index;
};
/// Index of a run-time value of one op, from Op::runtime.
struct RuntimeId {
  std::uint8_t index;
  enum class Kind : std::uint8_t { integer, real32, real64 } kind;
};

/// A value like Problem: made once by Op::arguments, changed between calls, read by Op::launch.
/// Run-time values that were not set take the manifest's default, computed from the real problem at each launch.
///
/// An axis that the op declares `on_device` may have its length in device memory: kernels read it when they run, so that a graph
/// captured once serves every length. The problem's size is then its bound: it decides bucket, grid and default strides; memory must
/// reach that far, and what lies past the length may hold anything and is left as it is. A length under 0 or past the bound is
/// clamped and reported to Engine::check.
struct Arguments {
  std::array<const void*, max_tensors> tensors{};       // device addresses; null for an optional tensor that is absent
  std::array<std::int64_t, max_runtime> runtime{};      // integers as they are, reals as their bits
  std::array<const std::int32_t*, max_axes> lengths{};  // device addresses
  std::uint32_t runtime_set = 0;                        // bit i: run-time value i was given
  std::uint32_t lengths_set = 0;                        // bit i: the length of axis i is on the device

  Arguments& set(TensorId tensor, const void* address) noexcept {
    tensors[tensor.index] = address;
    return *this;
  }
  /// The axis's length is one int32 at this device address, read by each launch when it runs.
  Arguments& set(AxisId axis, const std::int32_t* length) noexcept {
    lengths[axis.index] = length;
    lengths_set |= 1U << axis.index;
    return *this;
  }
  /// The axis's length is the problem's size again.
  Arguments& reset(AxisId axis) noexcept {
    lengths[axis.index] = nullptr;
    lengths_set &= ~(1U << axis.index);
    return *this;
  }
  Arguments& set(RuntimeId value, std::int64_t number) noexcept {
    if (value.kind != RuntimeId::Kind::integer) return set(value, static_cast<double>(number));
    return set_bits(value, number);
  }
  Arguments& set(RuntimeId value, double number) noexcept {
    switch (value.kind) {
      case RuntimeId::Kind::integer: return set_bits(value, to_integer(number));
      case RuntimeId::Kind::real32: return set_bits(value, std::bit_cast<std::int32_t>(static_cast<float>(number)));
      case RuntimeId::Kind::real64: return set_bits(value, std::bit_cast<std::int64_t>(number));
    }
    return *this;
  }

 private:
  /// Towards zero; what 64 bits cannot hold becomes the nearest number that they can, and NaN the lowest.
  static std::int64_t to_integer(double number) noexcept {
    if (number >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
    return number > -0x1p63 ? static_cast<std::int64_t>(number) : std::numeric_limits<std::int64_t>::min();
  }
  Arguments& set_bits(RuntimeId value, std::int64_t bits) noexcept {
    runtime[value.index] = bits;
    runtime_set |= 1U << value.index;
    return *this;
  }
};

}  // namespace kiln
