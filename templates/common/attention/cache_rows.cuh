// Where the keys and values of a cache lie.
#pragma once

namespace kiln::attention {

/// The words of the choice, as op.toml spells them.
enum class CacheLayout { contiguous, paged, indexed };

/// A row of a tensor of keys or values: one of a sequence's (contiguous, indexed) or of a page's.
struct CacheRow {
  int outer, row;
};

/// Where keys of one sequence lie.
template <CacheLayout layout>
struct CacheRows {
  int sequence;
  const int* table;      // of the sequence: its pages in order (paged), or the rows of its keys in order (indexed)
  int page_size, count;  // `count`: pages of the pool (paged), or rows of a cache (indexed)

  /// An entry outside of 0 .. count - 1 counts as the nearer end.
  __device__ __forceinline__ CacheRow at(int key) const {
    if constexpr (layout == CacheLayout::contiguous) return {sequence, key};
    if constexpr (layout == CacheLayout::indexed) return {sequence, min(max(table[key], 0), count - 1)};
    const int index = key / page_size;
    return {min(max(table[index], 0), count - 1), key - index * page_size};
  }
};

}  // namespace kiln::attention
