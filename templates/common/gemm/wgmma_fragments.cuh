// Sums of a tile in memory for a pass that goes on with them, in the order in which threads hold them: all accesses are
// 16 bytes a thread and whole lines a warp, and neither side needs shared memory.
#pragma once

#include "common/gemm/wgmma_store.cuh"

namespace kiln::gemm {

/// A slot holds a tile: 64-row product by product, and of one [B::extent / 8][128 threads] fragments of 4 sums.
///
/// They are added up by pieces, each for a warpgroup of its own: 64 rows of a by up to 16 of b, so that there are many
/// even where the tiles are few.
template <typename Tiles>
struct SumsByFragment {
  static constexpr int of_product = Tiles::B::extent / 8, along_b = least_of(16, Tiles::B::extent);
  static constexpr int pieces_of_product = Tiles::B::extent / along_b;
  static constexpr int piece_floats = wgmma_rows * along_b;
  static constexpr int pieces = Tiles::A::extent / wgmma_rows * pieces_of_product;
  static_assert(Tiles::B::extent % along_b == 0);

  /// A piece as a tiling, whose tile it is.
  using PieceTiling =
      WgmmaTiling<typename Tiles::X::T, typename Tiles::X::T, Layout::nt, Tiles::swap ? along_b : wgmma_rows,
                  Tiles::swap ? wgmma_rows : along_b, 1, 1, 1, 1, Tiles::swap, false>;

  static __device__ __forceinline__ int row_of(int piece) { return Tiles::swap ? in_b(piece) : in_a(piece); }
  static __device__ __forceinline__ int column_of(int piece) { return Tiles::swap ? in_a(piece) : in_b(piece); }

  /// What a warpgroup holds, whose rows of a begin at `first`.
  static __device__ __forceinline__ void store(float* slots, int slot, int first, const WgmmaSums<Tiles>& sums) {
    float4* const to = reinterpret_cast<float4*>(slots) + fragment(slot, first / wgmma_rows * of_product);
#pragma unroll
    for (int i = 0; i < Tiles::row_blocks; ++i) {
#pragma unroll
      for (int j = 0; j < of_product; ++j) {
        const float* const four = &sums[i][j * 4];
        __stwb(to + (i * of_product + j) * warpgroup, make_float4(four[0], four[1], four[2], four[3]));
      }
    }
  }

  /// The sums of a piece over `count` slots of this block, in their order.
  static __device__ __forceinline__ void add(WgmmaSums<PieceTiling>& sums, const float* slots, int slot, int count,
                                             int piece) {
    constexpr int batch = 8;  // loaded before the first is added: so few threads wait for memory once, not each time
    const float* from = slots + fragment(slot, piece * of_piece) * 4;
#pragma unroll
    for (int i = 0; i < of_piece * 4; ++i) sums[0][i] = 0.0f;
#pragma unroll 1
    for (; count > 0; count -= batch, from += batch * next_floats) {
      vec<float, 4> loaded[batch][of_piece] = {};
#pragma unroll
      for (int i = 0; i < batch; ++i) {
#pragma unroll
        for (int j = 0; j < of_piece; ++j) {
          if (i < count) loaded[i][j] = load<4>(from + i * next_floats + j * warpgroup * 4);
        }
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
#pragma unroll
        for (int j = 0; j < of_piece * 4; ++j) sums[0][j] += loaded[i][j / 4].at[j % 4];
      }
    }
  }

 private:
  static constexpr int of_piece = along_b / 8;
  static constexpr int slot_floats = Tiles::tile_m * Tiles::tile_n;
  static constexpr int next_floats = slot_floats * Tiles::shares;  // parts of one tile are as many slots apart

  static __device__ __forceinline__ int in_a(int piece) { return piece / pieces_of_product * wgmma_rows; }
  static __device__ __forceinline__ int in_b(int piece) { return piece % pieces_of_product * along_b; }
  /// Of this thread, in a slot.
  static __device__ __forceinline__ long long fragment(int slot, int first) {
    return slot * (slot_floats / 4ll) + first * warpgroup + warpgroup_thread();
  }
};

}  // namespace kiln::gemm
