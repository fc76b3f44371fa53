// A problem: the sizes and selections that an op is asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kiln {

inline constexpr int max_axes = 12;
inline constexpr int max_selections = 16;  // types and choices
inline constexpr int max_runtime = 32;
inline constexpr int max_tensors = 24;

/// Index of an axis of one op, from Op::axis.
struct AxisId {
  std::uint8_t index;
};

/// Made by Op::problem. A value: copy it, keep it, change an axis between calls.
struct Problem {
  std::array<std::int64_t, max_axes> axes{};              // sizes in elements, in the manifest's order; of 0: no launch
  std::array<std::uint8_t, max_selections> selections{};  // index into the manifest's list of values

  [[nodiscard]] std::int64_t& operator[](AxisId axis) noexcept { return axes[axis.index]; }
  [[nodiscard]] std::int64_t operator[](AxisId axis) const noexcept { return axes[axis.index]; }
  bool operator==(const Problem&) const = default;
};

}  // namespace kiln
