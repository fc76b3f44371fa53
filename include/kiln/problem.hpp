// A problem: the sizes and selections that an op is asked for.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace kiln {

inline constexpr int max_axes = 12;
inline constexpr int max_selections = 16;  // types and choices
inline constexpr int max_runtime = 32;
inline constexpr int max_tensors = 24;
inline constexpr int max_rank = 4;  // of a tensor

/// Index of an axis of one op, from Op::axis.
struct AxisId {
  std::uint8_t index;
  std::uint32_t op = 0;  // Problem::op; 0: not checked
};

/// Made by Op::problem. A value: copy it, keep it, change an axis between calls. Two are equal if sizes and selections
/// are. Where `op` is 0, as in Problem{}, nothing takes a size of 0: Error(bad_input).
///
/// A problem or arguments of one op given to another throw Error(bad_input), but in a launch of a hot bucket, which
/// does not look. Builds without NDEBUG look there too, and assert that an id is of the same op as the values.
struct Problem {
  std::array<std::int64_t, max_axes> axes{};              // sizes in elements, in the manifest's order; of 0: no launch
  std::array<std::uint8_t, max_selections> selections{};  // index into the manifest's list of values
  std::uint32_t op = 0;                                   // a digest of the op's names; 0: not checked

  [[nodiscard]] std::int64_t& operator[](AxisId axis) noexcept {
    assert((axis.op == op || axis.op == 0 || op == 0) && "an axis of another op");
    return axes[axis.index];
  }
  [[nodiscard]] std::int64_t operator[](AxisId axis) const noexcept {
    assert((axis.op == op || axis.op == 0 || op == 0) && "an axis of another op");
    return axes[axis.index];
  }
  bool operator==(const Problem& other) const noexcept { return axes == other.axes && selections == other.selections; }
};

}  // namespace kiln
