// Whether views share memory, where that can be told without looking at each element: false may be wrong, true is not.
#pragma once

#include <cstdint>
#include <optional>

#include "kiln/tensor.hpp"

namespace kiln::manifest {

/// The memory from a view's first element to the end of its last. Views of which no two extents meet share nothing.
struct Extent {
  [[nodiscard]] bool meets(const Extent& other) const noexcept { return first < other.end && other.first < end; }

  std::uint64_t first, end;  // equal for a view without elements
};
/// Nothing where the view ends past what 64 bits can address.
std::optional<Extent> extent_of(const kiln::Tensor& view) noexcept;

/// Whether two elements of one view share memory. Views without elements share none.
bool overlaps_itself(const kiln::Tensor& view) noexcept;
/// Whether an element of one shares memory with one of the other. Views without an extent share none.
bool overlap(const kiln::Tensor& left, const kiln::Tensor& right) noexcept;
/// overlap(), but not of views of the same elements in the same order, as where an op works in place.
bool overlap_in_part(const kiln::Tensor& left, const kiln::Tensor& right) noexcept;

}  // namespace kiln::manifest
