// Rows of queries, keys or values in shared memory, as TMA writes and wgmma reads them. Also how the warps that copy
// and those that multiply take turns at them.
#pragma once

#include "common/mbarrier.cuh"
#include "common/mma.cuh"
#include "common/named_barrier.cuh"
#include "common/setmaxnreg.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

namespace kiln::attention {

inline constexpr int warpgroup = 128, warpgroup_rows = 64;

/// Columns of a box: as many as a swizzle takes of those that divide `columns`.
template <int columns, typename T = bf16>
inline constexpr int box_columns_of = (columns * sizeof(T) % 128 == 0  ? 128
                                       : columns * sizeof(T) % 64 == 0 ? 64
                                                                       : 32) /
                                      static_cast<int>(sizeof(T));

/// Columns that there is room for: TMA fills those past the tensor's with zeros.
template <int dim>
inline constexpr int padded_columns = (dim + 31) / 32 * 32;

/// tma_load_4d to every block of the cluster that `blocks` has a bit for. Each gets the box at its own address `to`,
/// and its bytes are reported to its own barrier at `barrier`.
__device__ __forceinline__ void tma_load_4d_multicast(unsigned to, const tensor_map* map, unsigned barrier, int x,
                                                      int y, int z, int w, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "h"(blocks)
      : "memory");
}

/// `rows` tokens of one head, or tokens of several heads, as TMA lays them down, in boxes. A box has 64 columns of 16 bits under the 128-byte
/// swizzle, 32 under the 64-byte one, 16 under the 32-byte one. A box of 8 bits has twice as many columns. Boxes lie
/// one after another. Past `dim` the last one has zeros.
template <int dim, int rows, int box_columns_ = box_columns_of<padded_columns<dim>>, int element_bytes = 2>
struct SwizzledTile {
  using OfBytes = SwizzledTile<dim, rows, box_columns_, 1>;  // the same boxes of 8-bit elements
  static constexpr int box_columns = box_columns_, swizzle = box_columns * element_bytes,
                       boxes = (dim + box_columns - 1) / box_columns;
  static constexpr int box_bytes = rows * swizzle, bytes = boxes * box_bytes;
  static constexpr int of_16_rows = 16 * swizzle;                // bytes from a row to the 16th after it
  static constexpr int steps = (dim * element_bytes + 31) / 32;  // of products over all columns
  static_assert(rows % 16 == 0);

  /// Starts the copies of the rows from `row` on, whose bytes are reported to `barrier`.
  static __device__ __forceinline__ void load(unsigned to, const tensor_map* map, unsigned barrier, int head, int row,
                                              int plane) {
#pragma unroll
    for (int box = 0; box < boxes; ++box)
      tma_load_4d(to + box * box_bytes, map, barrier, box * box_columns, head, row, plane);
  }

  /// Starts the copies of a page's box of each column's box, as PagedRows describes them, to the rows from `row` on; `from` is the first row in the
  /// page `plane`.
  static __device__ __forceinline__ void load_page(unsigned tile, const tensor_map* map, unsigned barrier, int row,
                                                   int from, int plane) {
#pragma unroll
    for (int box = 0; box < boxes; ++box)
      tma_load_5d(tile + box * box_bytes + row * swizzle, map, barrier, box * box_columns, 0, 0, from / 8, plane);
  }

  /// Loads this block's share of the boxes to all `blocks` of the cluster.
  template <int blocks>
  static __device__ __forceinline__ void load_for_all(unsigned to, const tensor_map* map, unsigned barrier, int head,
                                                      int row, int plane, int rank) {
    static_assert(boxes % blocks == 0);
#pragma unroll
    for (int i = 0; i < boxes; i += blocks) {
      const int box = i + rank;
      tma_load_4d_multicast(to + box * box_bytes, map, barrier, box * box_columns, head, row, plane, (1 << blocks) - 1);
    }
  }

  /// The tile as an operand with k along the columns. `at(row, step)`: bytes to the 32 bytes of columns of a step, for
  /// rows from a multiple of 8 on.
  static __device__ __forceinline__ unsigned long long along_columns(unsigned tile) {
    return wgmma_descriptor(tile, 8 * swizzle, 16, swizzle);
  }
  static __device__ constexpr int at(int row, int step) {
    return step * 32 / swizzle * box_bytes + step * 32 % swizzle + row * swizzle;
  }
  /// Loads a fragment of 16 rows by the 32 bytes of columns of a step, as the a of mma or wgmma.
  /// REQUIRES: `row`, the first of them, is a multiple of 8.
  static __device__ __forceinline__ void load_a(unsigned (&a)[4], unsigned tile, int row, int step) {
    const unsigned lane = threadIdx.x % 32, columns = step * 32 + lane / 16 * 16, own = row + lane % 16;
    ldmatrix_x4(a, tile + columns / swizzle * box_bytes + own * swizzle +
                       (columns % swizzle ^ (own * swizzle >> 7 & (swizzle / 16 - 1)) * 16));
  }
  /// As an operand whose k are the rows; 16 of them are of_16_rows bytes.
  static __device__ __forceinline__ unsigned long long along_rows(unsigned tile) {
    return wgmma_descriptor(tile, 8 * swizzle, box_bytes, swizzle);
  }
  /// Where a box's byte lies in the tile: the sum of these two, of the box and of the byte's place among its rows.
  static __device__ constexpr int of_box_at(int box) { return box * box_bytes; }
  static __device__ constexpr int of_byte_at(int byte) { return byte; }
};

/// A place that is written and read in turns: `full` completes a phase when it is written, `empty` when it is read.
struct Place {
  unsigned data, full, empty;  // shared addresses
};

/// Where the block stands in a ring of places.
template <int places>
struct RingPosition {
  int slot = 0;
  unsigned parity = 0;  // of the slot's current use

  __device__ __forceinline__ void advance() {
    if (++slot == places) {
      slot = 0;
      parity ^= 1;
    }
  }
};

/// Registers: 168 a thread where the block has three warpgroups and 128 where it has four; the one that copies needs few.
template <int consumers, int of_copies = consumers == 3 ? 32 : 24>
__device__ __forceinline__ void take_registers(bool copies) {
  constexpr int of_consumer = ((consumers == 3 ? 512 : 504) - of_copies) / consumers / 8 * 8;
  if constexpr (consumers >= 2) {
    if (copies) {
      setmaxnreg_dec<of_copies>();
    } else {
      setmaxnreg_inc<of_consumer>();
    }
  }
}

/// Registers of a thread where a warpgroup copies, one widens, and `consumers` multiply, of a launch's 168, 128 or 96 a thread.
template <int consumers>
struct WideningRegisters {
  static constexpr int warpgroups = consumers + 2, all = 512 / warpgroups / 8 * 8 * warpgroups;
  static constexpr int of_other = consumers == 1 ? 56 : 32, left = (all - 2 * of_other) / consumers / 8 * 8;
  static constexpr int of_consumer = left < 240 ? left : 240;
};

/// Zeros, by a warpgroup, in the rows from `begin` to before `end`, for wgmma. Other warpgroups may do the same. Ends with barrier `barrier`.
template <typename Tile>
__device__ __forceinline__ void clear_rows(int begin, int end, char* tile, int barrier) {
#pragma unroll 1
  for (int at = begin * Tile::swizzle + static_cast<int>(threadIdx.x) % warpgroup * 16; at < end * Tile::swizzle;
       at += warpgroup * 16) {
#pragma unroll
    for (int box = 0; box < Tile::boxes; ++box)
      *reinterpret_cast<uint4*>(tile + Tile::of_box_at(box) + Tile::of_byte_at(at)) = make_uint4(0, 0, 0, 0);
  }
  fence_proxy_async();
  named_barrier_sync(barrier, warpgroup);
}
/// In the rows from `begin` on.
template <typename Tile>
__device__ __forceinline__ void clear_rows_from(int begin, char* tile, int barrier) {
  clear_rows<Tile>(begin, Tile::box_bytes / Tile::swizzle, tile, barrier);
}

/// Says that this warp has read a place that all blocks of the cluster fill.
template <int blocks>
__device__ __forceinline__ void release_to(const Place& place) {
  const unsigned lane = threadIdx.x % 32;
  if (lane < blocks) mbarrier_arrive_cluster(place.empty, lane);
}

/// Says that this warp has read a place.
__device__ __forceinline__ void release(const Place& place) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(place.empty);
}

}  // namespace kiln::attention
