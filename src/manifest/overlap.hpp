// Whether views share memory, where that can be told without looking at each element: false may be wrong, true is not.
#pragma once

#include "kiln/tensor.hpp"

namespace kiln::manifest {

/// Whether two elements of one view share memory. Views without elements share none.
bool overlaps_itself(const kiln::Tensor& view) noexcept;
/// Whether an element of one shares memory with one of the other.
bool overlap(const kiln::Tensor& left, const kiln::Tensor& right) noexcept;
/// overlap(), but not of views that begin at one address with elements of one size, as where an op works in place.
bool overlap_in_part(const kiln::Tensor& left, const kiln::Tensor& right) noexcept;

}  // namespace kiln::manifest
