// A tile of a product on the tensor cores of sm_90a. Here is how wgmma reads operands that TMA writes, the ring that
// they pass through, and the main loop.
//
// wgmma takes one operand by 64 rows at a time (a) and the other whole (b). Here a is x and b is w, unless `swap`. Then
// the few rows of x are b, as wide as they need to be, and the result comes transposed.
#pragma once

#include "common/elect.cuh"
#include "common/gemm/choices.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/types.cuh"
#include "common/wgmma.cuh"

namespace kiln::gemm {

inline constexpr int wgmma_rows = 64;  // of a and of the result, of one instruction
inline constexpr int warpgroup = 128;  // threads
inline constexpr int span = 128;       // bytes of the swizzle: of a row of a box, and of a stage along k
template <typename T>
inline constexpr int stage_k = span / static_cast<int>(sizeof(T));  // elements of a stage

/// One operand's part of a stage: `extent` of m or n by stage_k of k. `shares` blocks of a cluster multiply by it, and
/// each loads an equal part for all.
///
/// Where k runs along memory, rows of the tile are rows of shared memory, k innermost: one box. Else the tile is cut
/// into columns of 64 elements along m or n, a box each of stage_k rows. `in_planes`: the operands of several products,
/// of which the map's third dimension tells one.
template <typename T_, int extent_, bool along_k, int shares, bool in_planes>
struct StagedOperand {
  using T = T_;
  static constexpr int extent = extent_;
  static constexpr int bytes = extent * span;
  static constexpr major lies = along_k ? major::k : major::mn;

  static constexpr int atom_bytes = 8 * span;  // 8 rows, after which the swizzle repeats
  static constexpr int box_rows = (along_k ? extent : stage_k<T>) / shares;
  static constexpr int column =
      span / static_cast<int>(sizeof(T));  // elements of m or n that a box without along_k holds
  static constexpr int column_bytes = stage_k<T> * span;
  static constexpr int whole = along_k ? 8 : column;  // rows or elements that an operand may be moved by
  static_assert(along_k || column_bytes == column * span, "moved by as many bytes as an operand along k is");
  static_assert(box_rows % 8 == 0, "a box is whole atoms of the swizzle");
  static_assert(along_k || (extent % column == 0 && sizeof(T) == 2));

  /// The rows of a box of the map, for an operand of `all` rows along m or n. A box has those of a tile, or `all` where
  /// these are fewer.
  static __device__ __forceinline__ int rows_of_box(int all) {
    return along_k ? min(box_rows, (all + 8 * shares - 1) / (8 * shares) * 8) : box_rows;
  }
  /// What comes of it in a stage, in boxes of so many rows.
  static __device__ __forceinline__ int bytes_in(int box) { return bytes / box_rows * box; }

  /// Starts the copy of this block's part, to all who share it, from `outer` (of m or n) and `k` on.
  static __device__ __forceinline__ void load(unsigned to, const tensor_map* map, unsigned full, int outer, int k,
                                              int plane, int rank, int box = box_rows) {
    const int row = shares == 1 ? 0 : rank * box;
    if constexpr (along_k) {
      load_box(to + row * span, map, full, k, outer + row, plane);
    } else {
#pragma unroll
      for (int i = 0; i < extent / column; ++i)
        load_box(to + i * column_bytes + row * span, map, full, outer + i * column, k + row, plane);
    }
  }

  /// Brings the part that load() takes to L2 alone.
  static __device__ __forceinline__ void prefetch(const tensor_map* map, int outer, int k, int plane, int rank) {
    const int row = shares == 1 ? 0 : rank * box_rows;
    if constexpr (along_k) {
      prefetch_box(map, k, outer + row, plane);
    } else {
#pragma unroll
      for (int i = 0; i < extent / column; ++i) prefetch_box(map, outer + i * column, k + row, plane);
    }
  }

  /// The descriptor of a tile's first rows and k.
  static __device__ __forceinline__ unsigned long long descriptor(unsigned tile) {
    if constexpr (along_k) return wgmma_descriptor(tile, atom_bytes);
    return wgmma_descriptor(tile, atom_bytes, column_bytes);
  }
  /// Bytes from there to what the product at `step` takes, for the rows from `first` on. A step has 32 bytes of k if it
  /// is the inner dimension, else as many elements of it.
  /// REQUIRES: `first` is a multiple of 64.
  static __device__ constexpr int offset(int first, int step) {
    return along_k ? first * span + step * 32 : first / column * column_bytes + step * 2 * atom_bytes;
  }

 private:
  static __device__ __forceinline__ void load_box(unsigned to, const tensor_map* map, unsigned full, int x, int y,
                                                  int plane) {
    constexpr unsigned short blocks = (1 << shares) - 1;
    if constexpr (in_planes && shares > 1) {
      tma_load_3d_multicast(to, map, full, x, y, plane, blocks);
    } else if constexpr (in_planes) {
      tma_load_3d(to, map, full, x, y, plane);
    } else if constexpr (shares > 1) {
      tma_load_2d_multicast(to, map, full, x, y, blocks);
    } else {
      tma_load_2d(to, map, full, x, y);
    }
  }
  static __device__ __forceinline__ void prefetch_box(const tensor_map* map, int x, int y, int plane) {
    if constexpr (in_planes) {
      tma_prefetch_3d(map, x, y, plane);
    } else {
      tma_prefetch_2d(map, x, y);
    }
  }
};

/// TMA fills what lies outside of a tensor with zeros. A row of zeros takes it two to four times as long as one that it
/// reads. 129 rows in tiles of 128 took twice the time of 256. So boxes lie inside of operands, except for what whole
/// atoms or columns need. Where all of x is one tile, boxes are as high as x (rows_of_box). Else those of the last tile
/// begin before it.
///
/// This is how far before `outer` the copies of a tile begin whose operand ends at `end`. The products then begin at
/// the tile's own rows. After these they take whatever follows in shared memory, and the result is where y has nothing.
/// `most` keeps that within the block's shared memory; of a tile that lies wholly outside only the copies count.
template <typename Operand>
__device__ __forceinline__ int rows_before(int outer, int end, int most) {
  const int back = max(min(outer + Operand::extent - end, outer), 0) / Operand::whole * Operand::whole;
  return outer < end ? min(back, most) : back;
}

namespace detail {
template <bool first, typename A, typename B>
struct choose {
  using type = A;
};
template <typename A, typename B>
struct choose<false, A, B> {
  using type = B;
};
}  // namespace detail

/// What a kernel is compiled for. A block is a warpgroup that loads and `consumers` that multiply. These share a tile,
/// or take tiles in turns (`pingpong`), and one stores while the other multiplies. The blocks of a cluster hold
/// neighbouring tiles along m or n, and load for each other what these share. With cluster_k they hold parts of one
/// tile along k.
template <typename T, typename U, Layout layout, int tile_m_, int tile_n_, int stages_, int cluster_m_, int cluster_n_,
          int cluster_k_, bool swap_, bool pingpong_, bool x_planes = false, bool w_planes = false>
struct WgmmaTiling {
  static constexpr int tile_m = tile_m_, tile_n = tile_n_, stages = stages_;
  static constexpr int cluster_m = cluster_m_, cluster_n = cluster_n_, cluster_k = cluster_k_;
  static constexpr int cluster = cluster_m * cluster_n * cluster_k;
  static constexpr int shares = cluster_m * cluster_n;  // blocks that load for each other: all of the cluster or one
  static constexpr bool swap = swap_, pingpong = pingpong_, y_planes = x_planes;
  static_assert(cluster_m == 1 || cluster_n == 1);
  static_assert(shares == 1 || cluster_k == 1);

  using X = StagedOperand<T, tile_m, x_runs_along_k<layout>, cluster_n, x_planes>;
  using W = StagedOperand<U, tile_n, w_runs_along_k<layout>, cluster_m, w_planes>;
  using A = typename detail::choose<swap, W, X>::type;
  using B = typename detail::choose<swap, X, W>::type;
  static_assert(sizeof(T) == sizeof(U) && A::extent % wgmma_rows == 0);
  static constexpr int tile_k = stage_k<T>;
  static constexpr int k_steps = span / 32;
  static constexpr int stage_bytes = X::bytes + W::bytes;

  static constexpr int consumers = pingpong ? 2 : A::extent == 3 * wgmma_rows ? 3 : A::extent > wgmma_rows ? 2 : 1;
  static constexpr int threads = warpgroup * (1 + consumers);
  /// 64-row products of one warpgroup.
  static constexpr int row_blocks = A::extent / wgmma_rows / (pingpong ? 1 : consumers);
  static_assert(row_blocks >= 1);
  /// The most of b that one instruction takes. Its sums must fit the registers that a thread has of 65,536 before they
  /// are moved, or ptxas complains (C7602).
  static constexpr int widest = consumers == 3 ? 192 : 256;
};

/// Sums of the consuming warpgroup. Thread t holds what common/wgmma.cuh says of each 64-row product.
template <typename Tiles>
using WgmmaSums = float[Tiles::row_blocks][Tiles::B::extent / 2];

/// The stages of a block in shared memory, and two barriers for each.
///   full   completes a phase when the bytes of one stage have come; consumers wait for it. Its one arrival is the
///          producer's, which announces the bytes; in a cluster some of them are copied by another block.
///   empty  completes a phase when all warps that read the stage are done with it; the producer waits for it. In a
///          cluster that loads for each other, it counts the warps of all blocks, for a producer writes into all of them.
template <typename Tiles>
struct Ring {
  unsigned stages, barriers;  // shared addresses
  static constexpr int bytes = Tiles::stages * Tiles::stage_bytes, barrier_bytes = Tiles::stages * 16;
  static constexpr int readers = (Tiles::pingpong ? 1 : Tiles::consumers) * warpgroup / 32 * Tiles::shares;

  __device__ __forceinline__ unsigned stage(int slot) const { return stages + slot * Tiles::stage_bytes; }
  __device__ __forceinline__ unsigned full(int slot) const { return barriers + slot * 16; }
  __device__ __forceinline__ unsigned empty(int slot) const { return barriers + slot * 16 + 8; }

  /// Those of the stages from `first` to before `end`, for one warp, of which one thread makes all: several would take turns.
  template <int first, int end>
  __device__ __forceinline__ void make_barriers() const {
    if (elect_one()) {
#pragma unroll
      for (int slot = first; slot < end; ++slot) {
        mbarrier_init(full(slot), 1);
        mbarrier_init(empty(slot), readers);
      }
      fence_mbarrier_init();
    }
    __syncwarp();
  }

  /// Says that this warp has read the stage.
  __device__ __forceinline__ void release(int slot) const {
    const unsigned lane = threadIdx.x % 32;
    if constexpr (Tiles::shares == 1) {
      if (lane == 0) mbarrier_arrive(empty(slot));
    } else {
      if (lane < Tiles::shares) mbarrier_arrive_cluster(empty(slot), lane);
    }
  }
};

/// Where the producer or a consumer stands in the ring.
template <int stages>
struct RingPosition {
  int slot = 0;
  unsigned parity = 0;  // of the slot's current use: the lowest bit of how often it was used before

  __device__ __forceinline__ void advance() {
    if (++slot == stages) {
      slot = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void advance(int uses) {
    const int moved = slot + uses;
    parity ^= moved / stages & 1;
    slot = moved % stages;
  }
};

/// A warpgroup's operands in a stage: of a, its rows.
template <typename Tiles>
struct StageOperands {
  using A = typename Tiles::A;
  using B = typename Tiles::B;
  unsigned long long a, b;  // descriptors

  /// In the ring's first stage; `first`: of the rows of a in the tile.
  static __device__ __forceinline__ StageOperands in(const Ring<Tiles>& ring, int first) {
    const unsigned x = ring.stage(0), w = x + Tiles::X::bytes;
    return {A::descriptor((Tiles::swap ? w : x) + A::offset(first, 0)), B::descriptor(Tiles::swap ? x : w)};
  }
  __device__ __forceinline__ StageOperands at(int slot) const {
    return {wgmma_descriptor_at(a, slot * Tiles::stage_bytes), wgmma_descriptor_at(b, slot * Tiles::stage_bytes)};
  }
  /// The operands of a tile whose x and w begin so many rows or columns into what was copied.
  __device__ __forceinline__ StageOperands from(int x_back, int w_back) const {
    return {wgmma_descriptor_at(a, (Tiles::swap ? w_back : x_back) * span),
            wgmma_descriptor_at(b, (Tiles::swap ? x_back : w_back) * span)};
  }

  /// The product of 64 of the rows, from row_block * 64 on, by all of b, at `step` of k.
  __device__ __forceinline__ void multiply(float (&sums)[B::extent / 2], int row_block, int step,
                                           bool accumulates) const {
    if constexpr (B::extent <= Tiles::widest) {
      multiply_by<B::extent>(sums, row_block, step, accumulates, 0);
    } else {
      constexpr int first = (B::extent / 2 + 15) / 16 * 16, second = B::extent - first;
      multiply_by<first>(reinterpret_cast<float(&)[first / 2]>(sums), row_block, step, accumulates, 0);
      multiply_by<second>(reinterpret_cast<float(&)[second / 2]>(sums[first / 2]), row_block, step, accumulates, first);
    }
  }
  /// By `width` of b from first_b on.
  template <int width>
  __device__ __forceinline__ void multiply_by(float (&sums)[width / 2], int row_block, int step, bool accumulates,
                                              int first_b) const {
    wgmma<typename A::T, typename B::T, width, A::lies, B::lies>(
        sums, wgmma_descriptor_at(a, A::offset(row_block * wgmma_rows, step)),
        wgmma_descriptor_at(b, B::offset(first_b, step)), accumulates);
  }
};

/// Starts the products of `k_tiles` stages by the first `row_blocks` times 64 rows. The last are still under way when
/// this returns. It returns the slot of their stage, which is still held.
/// REQUIRES: k_tiles >= 1.
template <typename Tiles, int row_blocks>
__device__ __forceinline__ int start_products(WgmmaSums<Tiles>& sums, const Ring<Tiles>& ring,
                                              RingPosition<Tiles::stages>& at, const StageOperands<Tiles>& operands,
                                              int k_tiles) {
  int held = at.slot;
#pragma unroll 1
  for (int tile = 0; tile < k_tiles; ++tile) {
    mbarrier_wait(ring.full(at.slot), at.parity);
    if constexpr (row_blocks > 0) {
      const StageOperands<Tiles> stage = operands.at(at.slot);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < Tiles::k_steps; ++step) {
#pragma unroll
        for (int i = 0; i < row_blocks; ++i) stage.multiply(sums[i], i, step, tile + step > 0);
      }
      wgmma_commit_group();
      wgmma_wait_group<1>();  // the products of the stage before
    } else {
      __syncwarp();  // all lanes have seen the stage before one gives it back
    }
    if (tile > 0) ring.release(held);
    held = at.slot;
    at.advance();
  }
  return held;
}

/// Starts products where `filled` of the warpgroup's 64-row products have rows of y. Where none has, it leaves all out,
/// and the sums are undefined. It is decided once a tile, between all and none, because ptxas keeps products under way
/// only where few branches meet after them.
template <typename Tiles>
__device__ __forceinline__ int start_filled_products(WgmmaSums<Tiles>& sums, const Ring<Tiles>& ring,
                                                     RingPosition<Tiles::stages>& at,
                                                     const StageOperands<Tiles>& operands, int k_tiles, int filled) {
  if (filled <= 0) return start_products<Tiles, 0>(sums, ring, at, operands, k_tiles);
  return start_products<Tiles, Tiles::row_blocks>(sums, ring, at, operands, k_tiles);
}

/// Waits for the last products, and gives their stage back.
template <typename Tiles>
__device__ __forceinline__ void finish_products(WgmmaSums<Tiles>& sums, const Ring<Tiles>& ring, int held) {
  wgmma_wait_group<0>();
#pragma unroll
  for (int i = 0; i < Tiles::row_blocks; ++i) hold(sums[i]);
  ring.release(held);
}

}  // namespace kiln::gemm
