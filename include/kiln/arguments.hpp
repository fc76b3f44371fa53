// What a launch is given besides its problem: device addresses and run-time values.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include "kiln/error.hpp"
#include "kiln/problem.hpp"
#include "kiln/tensor.hpp"

namespace kiln {

/// Index of a tensor of one op, from Op::tensor, with those of the strides that a launch may give it.
struct TensorId {
  std::uint8_t index;
  std::uint8_t strides = 0;                     // how many
  std::array<std::uint8_t, max_rank> stride{};  // run-time values, outermost first
  std::uint32_t op = 0;                         // Problem::op; 0: not checked
};
/// A tensor of a launch: its device address, and the strides that op.toml names for it, in elements, outermost first.
/// Strides that op.toml fixes, as the innermost 1, are not among them. Refers to the strides that it is made of.
struct StridedAddress {
  StridedAddress(const void* at, std::span<const std::int64_t> given) noexcept
      : address(at), strides(given.data()), count(given.size()) {}
  StridedAddress(const void* at, std::initializer_list<std::int64_t> given) noexcept
      : address(at), strides(given.begin()), count(given.size()) {}
  const void* address;
  const std::int64_t* strides;
  std::size_t count;
};
/// Index of a run-time value of one op, from Op::runtime.
struct RuntimeId {
  std::uint8_t index;
  enum class Kind : std::uint8_t { integer, real32, real64 } kind;
  std::uint32_t op = 0;  // Problem::op; 0: not checked
};

/// A value like Problem: made once by Op::arguments, changed between calls, read by Op::launch. A run-time value that
/// is not set takes the manifest's default, computed from the real problem at each launch.
///
/// The length of an axis that the op declares `on_device` may lie in device memory. Kernels read it when they run, so
/// that a graph captured once serves every length. The problem's size is then the length's bound, and decides bucket,
/// grid and default strides. Tensors must reach as far as the bound. Elements past the length may hold anything, and
/// are not written. A length under 0 or past the bound is clamped and reported by Engine::check.
struct Arguments {
  std::array<const void*, max_tensors> tensors{};       // device addresses; null for an optional tensor that is absent
  std::array<std::int64_t, max_runtime> runtime{};      // integers, and the bits of reals
  std::array<const std::int32_t*, max_axes> lengths{};  // device addresses
  std::uint32_t runtime_set = 0;                        // bit i: run-time value i was given
  std::uint32_t lengths_set = 0;                        // bit i: the length of axis i is on the device
  std::uint32_t op = 0;                                 // Problem::op; 0: not checked

  Arguments& set(TensorId tensor, const void* address) noexcept {
    assert(is_own(tensor.op) && "a tensor of another op");
    tensors[tensor.index] = address;
    return *this;
  }
  /// Sets the address, and each stride as set(RuntimeId) of its name does. Throws Error(bad_input), and sets nothing,
  /// for another number of strides than op.toml names for the tensor.
  Arguments& set(TensorId tensor, const StridedAddress& given) {
    assert(is_own(tensor.op) && "a tensor of another op");
    if (given.count != tensor.strides) [[unlikely]]
      refuse(tensor, given.count);
    tensors[tensor.index] = given.address;
    for (std::size_t i = 0; i < given.count; ++i) {
      runtime[tensor.stride[i]] = given.strides[i];
      runtime_set |= 1U << tensor.stride[i];
    }
    return *this;
  }
  /// Takes the axis's length from the int32 at this device address, 4-byte aligned, which each launch reads when it
  /// runs.
  Arguments& set(AxisId axis, const std::int32_t* length) noexcept {
    assert(is_own(axis.op) && "an axis of another op");
    lengths[axis.index] = length;
    lengths_set |= 1U << axis.index;
    return *this;
  }
  /// Takes the axis's length from the problem again.
  Arguments& reset(AxisId axis) noexcept {
    lengths[axis.index] = nullptr;
    lengths_set &= ~(1U << axis.index);
    return *this;
  }
  /// Converted to the type of the value: a real becomes the integer next to it towards 0, clamped to 64 bits; NaN
  /// becomes the lowest.
  Arguments& set(RuntimeId value, std::int64_t number) noexcept {
    if (value.kind != RuntimeId::Kind::integer) return set(value, static_cast<double>(number));
    return set_bits(value, number);
  }
  /// An integer of another type, clamped to 64 bits.
  template <std::integral Number>
  Arguments& set(RuntimeId value, Number number) noexcept {
    if constexpr (std::unsigned_integral<Number> && sizeof(Number) == sizeof(std::int64_t))
      number = std::min(number, static_cast<Number>(std::numeric_limits<std::int64_t>::max()));
    return set(value, static_cast<std::int64_t>(number));
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
  [[noreturn, gnu::cold]] static void refuse(TensorId tensor, std::size_t strides) {
    throw Error(ErrorKind::bad_input, "tensor " + std::to_string(tensor.index) + " of the op is given " +
                                          std::to_string(strides) + " strides, and op.toml names " +
                                          std::to_string(tensor.strides) + " of it");
  }
  static std::int64_t to_integer(double number) noexcept {
    if (number >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
    return number > -0x1p63 ? static_cast<std::int64_t>(number) : std::numeric_limits<std::int64_t>::min();
  }
  [[nodiscard]] bool is_own(std::uint32_t id_op) const noexcept { return id_op == op || id_op == 0 || op == 0; }
  Arguments& set_bits(RuntimeId value, std::int64_t bits) noexcept {
    assert(is_own(value.op) && "a run-time value of another op");
    runtime[value.index] = bits;
    runtime_set |= 1U << value.index;
    return *this;
  }
};

}  // namespace kiln
