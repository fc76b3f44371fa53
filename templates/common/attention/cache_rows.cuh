// Where the keys and values of a cache lie.
#pragma once

namespace kiln::attention {

/// The words of the choice, as op.toml spells them.
enum class CacheLayout { contiguous, paged };

/// A row of a tensor of keys or values: one of a sequence's (contiguous) or of a page's.
struct CacheRow {
  int outer, row;
};

/// Where keys of one sequence lie.
template <CacheLayout layout>
struct CacheRows {
  int sequence;
  const int* pages;  // of the sequence, in order
  int page_size, page_count;

  /// A page that the pool does not have counts as its first or last.
  __device__ __forceinline__ CacheRow at(int key) const {
    if constexpr (layout == CacheLayout::contiguous) return {sequence, key};
    const int index = key / page_size;
    return {min(max(pages[index], 0), page_count - 1), key - index * page_size};
  }
};

}  // namespace kiln::attention
