// Whether views share memory, where that can be told without looking at each element: false may be wrong, true is not.
#pragma once

#include <cstdint>

#include "kiln/tensor.hpp"

namespace kiln::manifest {

/// The memory from a view's first element to the end of its last. Views of which no two extents meet share nothing.
struct Extent {
  [[nodiscard]] bool meets(const Extent& other) const noexcept { return first < other.end && other.first < end; }

  std::uint64_t first, end;  // equal for a view without elements
};
Extent extent_of(const kiln::Tensor& view) noexcept;

/// Whether two elements of one view share memory. Views without elements share none.
bool overlaps_itself(const kiln::Tensor& view) noexcept;
/// Whether an element of one shares memory with one of the other.
bool overlap(const kiln::Tensor& left, const kiln::Tensor& right) noexcept;
/// overlap(), but not of views that begin at one address with elements of one size, as where an op works in place.
bool overlap_in_part(const kiln::Tensor& left, const kiln::Tensor& right) noexcept;

}  // namespace kiln::manifest
