// Sums of a part of a tile, handed to the block that adds them up: in memory, in the order in which threads hold them, so
// that each thread reads what the same thread of the other block wrote, all accesses are 16 bytes a thread and whole
// lines a warp, and neither side needs shared memory.
#pragma once

#include "common/flag.cuh"
#include "common/gemm/wgmma_store.cuh"

namespace kiln::gemm {

/// A slot holds a tile: 64-row product by product, and of one [B::extent / 8][128 threads] fragments of 4 sums.
template <typename Tiles>
struct SumsByFragment {
  static constexpr int flags = 4;  // of a slot: one for each warpgroup that shares a tile, three at most

  /// What a warpgroup holds, whose rows of a begin at `first`, to a slot, for the same warpgroup of who takes them.
  static __device__ __forceinline__ void hand_over(float* slots, unsigned* raised, int slot, int first,
                                                   const WgmmaSums<Tiles>& sums) {
    float4* const to = reinterpret_cast<float4*>(slots) + fragment(slot, first);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float* const four = &sums[i / of_product][i % of_product * 4];
      __stwb(to + i * warpgroup, make_float4(four[0], four[1], four[2], four[3]));
    }
    warpgroup_sync();
    if (warpgroup_thread() == 0) flag_raise(raised + flag(slot, first));
  }

  /// Waits for `parts` slots, Tiles::shares apart, and adds them up in their order.
  static __device__ __forceinline__ void take(const float* slots, unsigned* raised, int slot, int first, int parts,
                                              WgmmaSums<Tiles>& sums) {
#pragma unroll 1
    for (; parts > 0; --parts, slot += Tiles::shares) {
      if (warpgroup_thread() == 0) flag_take(raised + flag(slot, first));
      warpgroup_sync();
      add(reinterpret_cast<const float4*>(slots) + fragment(slot, first), sums);
    }
  }

 private:
  static constexpr int of_product = Tiles::B::extent / 8, count = Tiles::row_blocks * of_product;
  /// Fragments that are loaded before the first is added, by the registers that the sums leave of take_registers'.
  static constexpr int registers = (Tiles::consumers == 3 ? 160 : 240) - count * 4 - 32;
  static constexpr int batch = registers >= 64 ? least_of(count, 16) : registers >= 32 ? 8 : 4;

  static __device__ __forceinline__ void add(const float4* from, WgmmaSums<Tiles>& sums) {
#pragma unroll
    for (int begin = 0; begin < count; begin += batch) {
      float4 loaded[batch];
#pragma unroll
      for (int i = 0; i < batch && begin + i < count; ++i) loaded[i] = __ldcg(from + (begin + i) * warpgroup);
#pragma unroll
      for (int i = 0; i < batch && begin + i < count; ++i) {
        float* const four = &sums[(begin + i) / of_product][(begin + i) % of_product * 4];
        four[0] += loaded[i].x;
        four[1] += loaded[i].y;
        four[2] += loaded[i].z;
        four[3] += loaded[i].w;
      }
    }
  }

  /// Of this thread, in a slot.
  static __device__ __forceinline__ long long fragment(int slot, int first) {
    return slot * (Tiles::tile_m * Tiles::tile_n / 4ll) + first / wgmma_rows * of_product * warpgroup +
           warpgroup_thread();
  }
  static __device__ __forceinline__ int flag(int slot, int first) {
    return slot * flags + first / (wgmma_rows * Tiles::row_blocks);
  }
};

}  // namespace kiln::gemm
