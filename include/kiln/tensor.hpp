// A tensor as callers hold it: Op::bind reads problems and arguments from such views.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>

#include "kiln/export.h"
#include "kiln/problem.hpp"

namespace kiln {

/// An element type.
enum class DType : std::uint8_t { bf16, f16, f32, f64, e4m3, e5m2, i8, u8, i32, i64 };
KILN_API std::string_view to_string(DType type) noexcept;  // "bf16"
KILN_API std::optional<DType> parse_dtype(std::string_view name) noexcept;
KILN_API std::int64_t size_of(DType type) noexcept;  // bytes

/// Memory of one tensor, which the caller owns. `device` is the ordinal of the GPU that has it.
struct Tensor {
  static constexpr int host = -2;     // memory that no GPU has
  static constexpr int unknown = -1;  // not checked

  const void* address = nullptr;  // null where a size is 0
  DType type = DType::f32;
  std::uint8_t rank = 0;  // 0, for a single element, to max_rank
  std::int16_t device = unknown;
  std::array<std::int64_t, max_rank> sizes{};    // outermost first
  std::array<std::int64_t, max_rank> strides{};  // elements between neighbours, 0 or more

  Tensor() = default;
  /// A dense row-major tensor. Precondition: max_rank sizes at most.
  Tensor(const void* at, DType of, std::initializer_list<std::int64_t> shape, int on = unknown) noexcept
      : address(at), type(of), device(ordinal(on)) {
    for (const std::int64_t size : shape) sizes[rank++] = size;
    std::int64_t stride = 1;
    for (int i = rank; i-- > 0; stride *= sizes[static_cast<std::size_t>(i)])
      strides[static_cast<std::size_t>(i)] = stride;
  }
  /// Precondition: max_rank sizes at most, and as many strides.
  Tensor(const void* at, DType of, std::initializer_list<std::int64_t> shape, std::initializer_list<std::int64_t> steps,
         int on = unknown) noexcept
      : address(at), type(of), device(ordinal(on)) {
    for (const std::int64_t size : shape) sizes[rank++] = size;
    std::size_t at_dimension = 0;
    for (const std::int64_t stride : steps) strides[at_dimension++] = stride;
  }

 private:
  /// A number that is no ordinal stays one, and is refused where the tensor is bound.
  static std::int16_t ordinal(int on) noexcept {
    using Limits = std::numeric_limits<std::int16_t>;
    return static_cast<std::int16_t>(std::clamp<int>(on, Limits::min(), Limits::max()));
  }
};

}  // namespace kiln
