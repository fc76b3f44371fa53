// Keys or values from pages in shared memory, in groups of eight rows, so that one copy brings all columns of those of a page.
#pragma once

#include "common/attention/swizzled_tile.cuh"

namespace kiln::attention {

/// As SwizzledTile, but the boxes of columns of eight rows lie side by side, and then come the next eight rows. So a box of TMA has all columns
/// of a page's rows: a copy of 16 rows of 64 columns alone takes nearly as long as one of twice as many bytes.
template <int dim, int rows, int box_columns_, int element_bytes = 2>
struct GroupedTile {
  using OfBytes = GroupedTile<dim, rows, box_columns_, 1>;  // the same boxes of 8-bit elements
  static constexpr int box_columns = box_columns_, swizzle = box_columns * element_bytes, boxes = dim / box_columns;
  static constexpr int of_box = 8 * swizzle, of_group = boxes * of_box;  // bytes of eight rows
  static constexpr int of_16_rows = 2 * of_group, bytes = rows / 8 * of_group;
  static constexpr int box_bytes = rows * swizzle;  // of all rows
  static constexpr int steps = (dim * element_bytes + 31) / 32;
  static_assert(rows % 16 == 0 && dim % box_columns == 0);

  /// Starts the copy of `map`'s box of the page `plane`, as PagedRows describes it, to the rows from `row` on; `from` is its first row in the page.
  static __device__ __forceinline__ void load_page(unsigned tile, const tensor_map* map, unsigned barrier, int row,
                                                   int from, int plane) {
    tma_load_5d(tile + row / 8 * of_group, map, barrier, 0, 0, 0, from / 8, plane);
  }
  static __device__ __forceinline__ unsigned long long along_columns(unsigned tile) {
    return wgmma_descriptor(tile, of_group, 16, swizzle);
  }
  static __device__ constexpr int at(int row, int step) {
    return step * 32 / swizzle * of_box + step * 32 % swizzle + row / 8 * of_group;
  }
  static __device__ __forceinline__ unsigned long long along_rows(unsigned tile) {
    return wgmma_descriptor(tile, of_group, of_box, swizzle);
  }
  static __device__ constexpr int of_box_at(int box) { return box * of_box; }
  static __device__ constexpr int of_byte_at(int byte) { return byte / of_box * of_group + byte % of_box; }
};

}  // namespace kiln::attention
