#include "manifest/overlap.hpp"

#include <cstddef>
#include <cstdint>

namespace kiln::manifest {
namespace {

/// Whether its elements fill its extent: each stride is the number of elements within. Dimensions of stride 0 repeat
/// them.
bool is_dense(const kiln::Tensor& view, const Extent& extent) noexcept {
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < view.rank;) {
    const bool is_next = view.sizes[i] > 1 && static_cast<std::uint64_t>(view.strides[i]) == elements;
    if (is_next) elements *= static_cast<std::uint64_t>(view.sizes[i]);
    i = is_next ? 0 : i + 1;
  }
  return elements * static_cast<std::uint64_t>(size_of(view.type)) == extent.end - extent.first;
}

/// Whether the first or last element of `of` lies within `in`.
bool has_end_in(const Extent& of, const Extent& in) noexcept {
  const auto is_in = [&](std::uint64_t at) { return at >= in.first && at < in.end; };
  return is_in(of.first) || is_in(of.end - 1);
}

/// Whether both have the same addresses in the same order. Dimensions of one element have no step.
bool are_same_elements(const kiln::Tensor& left, const kiln::Tensor& right) noexcept {
  if (left.address != right.address || size_of(left.type) != size_of(right.type)) return false;
  const auto next = [](const kiln::Tensor& view, std::size_t at) {
    while (at < view.rank && view.sizes[at] == 1) ++at;
    return at;
  };
  std::size_t i = next(left, 0), j = next(right, 0);
  for (; i < left.rank && j < right.rank; i = next(left, i + 1), j = next(right, j + 1))
    if (left.sizes[i] != right.sizes[j] || left.strides[i] != right.strides[j]) return false;
  return i == left.rank && j == right.rank;
}

}  // namespace

std::optional<Extent> extent_of(const kiln::Tensor& view) noexcept {
  const auto first = reinterpret_cast<std::uint64_t>(view.address);
  std::uint64_t last = 0, end = 0;  // in elements, in bytes
  for (std::size_t i = 0; i < view.rank; ++i) {
    if (view.sizes[i] <= 0) return Extent{first, first};
    std::uint64_t reach = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(view.sizes[i] - 1),
                               static_cast<std::uint64_t>(view.strides[i]), &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return std::nullopt;
  }
  if (__builtin_add_overflow(last, std::uint64_t{1}, &end) ||
      __builtin_mul_overflow(end, static_cast<std::uint64_t>(size_of(view.type)), &end) ||
      __builtin_add_overflow(end, first, &end))
    return std::nullopt;
  return Extent{first, end};
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
  const auto of_left = extent_of(left), of_right = extent_of(right);
  if (!of_left || !of_right || !of_left->meets(*of_right)) return false;
  if (of_left->first == of_right->first) return true;
  return (is_dense(left, *of_left) && has_end_in(*of_right, *of_left)) ||
         (is_dense(right, *of_right) && has_end_in(*of_left, *of_right));
}

bool overlap_in_part(const kiln::Tensor& left, const kiln::Tensor& right) noexcept {
  return overlap(left, right) && !are_same_elements(left, right);
}

}  // namespace kiln::manifest
