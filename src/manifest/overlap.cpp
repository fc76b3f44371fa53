#include "manifest/overlap.hpp"

#include <cstddef>
#include <cstdint>

namespace kiln::manifest {
namespace {

/// Whether its elements fill its extent.
bool is_dense(const kiln::Tensor& view, const Extent& extent) noexcept {
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < view.rank; ++i) elements *= static_cast<std::uint64_t>(view.sizes[i]);
  return elements * static_cast<std::uint64_t>(size_of(view.type)) == extent.end - extent.first;
}

/// Whether the first or last element of `of` lies within `in`.
bool has_end_in(const Extent& of, const Extent& in) noexcept {
  const auto is_in = [&](std::uint64_t at) { return at >= in.first && at < in.end; };
  return is_in(of.first) || is_in(of.end - 1);
}

}  // namespace

Extent extent_of(const kiln::Tensor& view) noexcept {
  const auto first = reinterpret_cast<std::uint64_t>(view.address);
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < view.rank; ++i) {
    if (view.sizes[i] <= 0) return {first, first};
    elements += static_cast<std::uint64_t>(view.sizes[i] - 1) * static_cast<std::uint64_t>(view.strides[i]);
  }
  return {first, first + elements * static_cast<std::uint64_t>(size_of(view.type))};
}

bool overlaps_itself(const kiln::Tensor& view) noexcept {
  for (std::size_t i = 0; i < view.rank; ++i) {
    const std::int64_t size = view.sizes[i], stride = view.strides[i];
    if (size < 2) continue;
    if (stride == 0) return true;
    // One step of another dimension is as far as some steps of this one. Few steps reach so far, and few divisions are
    // made.
    for (std::size_t other = 0; other < view.rank; ++other) {
      const std::int64_t step = view.strides[other];
      const auto reach = static_cast<std::uint64_t>(size - 1) * static_cast<std::uint64_t>(stride);
      if (other != i && view.sizes[other] > 1 && step >= stride && static_cast<std::uint64_t>(step) <= reach &&
          step % stride == 0)
        return true;
    }
  }
  return false;
}

bool overlap(const kiln::Tensor& left, const kiln::Tensor& right) noexcept {
  const Extent of_left = extent_of(left), of_right = extent_of(right);
  if (!of_left.meets(of_right)) return false;
  if (of_left.first == of_right.first) return true;
  return (is_dense(left, of_left) && has_end_in(of_right, of_left)) ||
         (is_dense(right, of_right) && has_end_in(of_left, of_right));
}

bool overlap_in_part(const kiln::Tensor& left, const kiln::Tensor& right) noexcept {
  if (!overlap(left, right)) return false;
  return left.address != right.address || size_of(left.type) != size_of(right.type);
}

}  // namespace kiln::manifest
