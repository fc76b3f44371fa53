#include "manifest/overlap.hpp"

#include <cstddef>
#include <cstdint>

namespace kiln::manifest {
namespace {

/// Bytes from the first element to the end of the last.
std::uint64_t extent(const kiln::Tensor& view) noexcept {
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < view.rank; ++i) {
    if (view.sizes[i] <= 0) return 0;
    elements += static_cast<std::uint64_t>(view.sizes[i] - 1) * static_cast<std::uint64_t>(view.strides[i]);
  }
  return elements * static_cast<std::uint64_t>(size_of(view.type));
}

/// Whether its elements fill its extent.
bool is_dense(const kiln::Tensor& view) noexcept {
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < view.rank; ++i) elements *= static_cast<std::uint64_t>(view.sizes[i]);
  return elements * static_cast<std::uint64_t>(size_of(view.type)) == extent(view);
}

std::uint64_t first_of(const kiln::Tensor& view) noexcept { return reinterpret_cast<std::uint64_t>(view.address); }

/// Whether the first or last element of `of` lies within the extent of `in`.
bool has_end_in(const kiln::Tensor& of, const kiln::Tensor& in) noexcept {
  const std::uint64_t first = first_of(of), last = first + extent(of) - 1;
  const auto is_in = [&](std::uint64_t at) { return at - first_of(in) < extent(in); };
  return is_in(first) || is_in(last);
}

}  // namespace

bool overlaps_itself(const kiln::Tensor& view) noexcept {
  for (std::size_t i = 0; i < view.rank; ++i) {
    if (view.sizes[i] < 2) continue;
    if (view.strides[i] == 0) return true;
    // One step of another dimension is as far as some steps of this one.
    for (std::size_t other = 0; other < view.rank; ++other)
      if (other != i && view.sizes[other] > 1 && view.strides[other] % view.strides[i] == 0 &&
          view.strides[other] / view.strides[i] < view.sizes[i])
        return true;
  }
  return false;
}

bool overlap(const kiln::Tensor& left, const kiln::Tensor& right) noexcept {
  const std::uint64_t left_bytes = extent(left), right_bytes = extent(right);
  if (left_bytes == 0 || right_bytes == 0) return false;
  if (first_of(left) + left_bytes <= first_of(right) || first_of(right) + right_bytes <= first_of(left)) return false;
  if (first_of(left) == first_of(right)) return true;
  return (is_dense(left) && has_end_in(right, left)) || (is_dense(right) && has_end_in(left, right));
}

bool overlap_in_part(const kiln::Tensor& left, const kiln::Tensor& right) noexcept {
  if (!overlap(left, right)) return false;
  return first_of(left) != first_of(right) || size_of(left.type) != size_of(right.type);
}

}  // namespace kiln::manifest
