// Whether views share memory, where that can be told without looking at each element: false may be wrong, true is not.
#pragma once

#include "kiln/tensor.hpp"

namespace kiln::manifest {

/// Whether two elements of one view share memory. Views without elements share none.
bool overlaps_itself(const TensorView& view) noexcept;
/// Whether an element of one shares memory with one of the other.
bool overlap(const TensorView& left, const TensorView& right) noexcept;
/// overlap(), but not of views that begin at one address with elements of one size, as where an op works in place.
bool overlap_in_part(const TensorView& left, const TensorView& right) noexcept;

}  // namespace kiln::manifest
