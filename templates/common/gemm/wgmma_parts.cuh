// What a block multiplies: a tile, or a part of one along k, whose sums another block adds to its own.
//
// Sums are handed over in memory, in the order in which threads hold them. The block that adds them up receives them as
// stages of its ring. So they are on their way while it still multiplies, and no thread waits for memory.
#pragma once

#include "common/bulk_copy.cuh"
#include "common/flag.cuh"
#include "common/gemm/wgmma_store.cuh"
#include "common/gemm/wgmma_tile.cuh"

namespace kiln::gemm {

/// A tile of one product, or a part of it along k, by its corner; k in stages.
struct WgmmaWork {
  int row, column, first_k, k_tiles;
  int first_row, rows;  // of x and y, that are the product's
  int plane;            // which product
  int x_back, w_back;   // how far before its corner its copies of x and w begin (rows_before)
  int slot =
      -1;  // of a shared tile, whose first part takes the others' sums from there on; of another part, for its own
  int others = 0;  // how many
};

/// Each tile is one block's.
struct WholeTiles {
  static constexpr bool any = false;
  /// Stages of the ring that a work takes.
  static __device__ __forceinline__ int stages(const WgmmaWork& work) { return work.k_tiles; }
};

/// Some tiles are of several blocks. A slot holds a tile: [warpgroups that share it][fragments][128 threads] of 4 sums.
template <typename Tiles>
struct SharedTiles {
  float* slots;
  unsigned* raised;  // flags, of each slot
  static constexpr bool any = true;
  static constexpr int flags = 4;  // of a slot: one for each warpgroup that shares a tile, three at most

  static __device__ __forceinline__ int stages(const WgmmaWork& work) {
    return work.k_tiles + work.others * stages_of_part;
  }

  /// What a warpgroup holds of a part, whose rows of a begin at `first`, for the same warpgroup of who adds it.
  __device__ __forceinline__ void hand_over(const WgmmaWork& work, int first, const WgmmaSums<Tiles>& sums) const {
    const int mine = warpgroup_of(first);
    float4* const to = reinterpret_cast<float4*>(slots) +
                       (static_cast<long long>(work.slot) * warpgroups + mine) * count * warpgroup + warpgroup_thread();
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float* const four = &sums[i / of_product][i % of_product * 4];
      __stwb(to + i * warpgroup, make_float4(four[0], four[1], four[2], four[3]));
    }
    warpgroup_sync();
    if (warpgroup_thread() == 0) flag_raise(raised + work.slot * flags + mine);
  }

  /// Waits for the other parts of the work's tile, whose slots lie Tiles::shares apart, and copies them to the ring, in
  /// their order. For the thread that copies stages.
  __device__ __forceinline__ void copy(const Ring<Tiles>& ring, RingPosition<Tiles::stages>& at,
                                       const WgmmaWork& work) const {
#pragma unroll 1
    for (int part = 0; part < work.others; ++part) {
      const int slot = work.slot + part * Tiles::shares;
#pragma unroll 1
      for (int i = 0; i < warpgroups; ++i) flag_take(raised + slot * flags + i);
      fence_proxy_async_global();
      const char* const from =
          reinterpret_cast<const char*>(slots) + static_cast<long long>(slot) * (warpgroups * count * fragment_bytes);
#pragma unroll 1
      for (int begin = 0; begin < count; begin += of_stage, at.advance()) {
        const int bytes = least_of(of_stage, count - begin) * fragment_bytes;
        const unsigned stage = ring.stage(at.slot), full = ring.full(at.slot);
        mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
        mbarrier_arrive_expect_tx(full, warpgroups * bytes);
#pragma unroll 1
        for (int i = 0; i < warpgroups; ++i)
          bulk_load(stage + i * of_stage * fragment_bytes, from + (i * count + begin) * fragment_bytes, bytes, full);
      }
    }
  }

  /// Adds them up, from the ring at `at` on.
  __device__ __forceinline__ void add(const Ring<Tiles>& ring, RingPosition<Tiles::stages>& at, const WgmmaWork& work,
                                      int first, WgmmaSums<Tiles>& sums) const {
    const int mine = warpgroup_of(first) * of_stage * fragment_bytes + warpgroup_thread() * 16;
#pragma unroll 1
    for (int part = 0; part < work.others; ++part) {
#pragma unroll
      for (int begin = 0; begin < count; begin += of_stage) {
        mbarrier_wait(ring.full(at.slot), at.parity);
        const char* const from = dynamic_shared() + at.slot * Tiles::stage_bytes + mine;
#pragma unroll
        for (int i = begin; i < least_of(begin + of_stage, count); ++i) {
          const vec<float, 4> more = load<4>(reinterpret_cast<const float*>(from + (i - begin) * fragment_bytes));
          float* const four = &sums[i / of_product][i % of_product * 4];
#pragma unroll
          for (int j = 0; j < 4; ++j) four[j] += more.at[j];
        }
        __syncwarp();
        ring.release(at.slot);  // these were ordinary reads, but a shared tile is its cluster's last work
        at.advance();
      }
    }
  }

 private:
  static constexpr int warpgroups = Tiles::pingpong ? 1 : Tiles::consumers;
  static constexpr int of_product = Tiles::B::extent / 8,
                       count = Tiles::row_blocks * of_product;  // fragments of 64 x 8
  static constexpr int fragment_bytes = warpgroup * 16;
  /// Fragments of each warpgroup in a stage.
  static constexpr int most_of_stage = Tiles::stage_bytes / (warpgroups * fragment_bytes);
  static constexpr int stages_of_part = (count + most_of_stage - 1) / most_of_stage;
  static constexpr int of_stage = (count + stages_of_part - 1) / stages_of_part;
  static_assert(most_of_stage > 0 && (count + of_stage - 1) / of_stage == stages_of_part);

  static __device__ __forceinline__ int warpgroup_of(int first) { return first / (wgmma_rows * Tiles::row_blocks); }
};

}  // namespace kiln::gemm
