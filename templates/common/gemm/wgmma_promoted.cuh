// The main loop for 8-bit floats. Tensor cores keep few places of a sum of theirs, so each stage (128 of k) is summed
// afresh and then added in f32, times the scales of its block where there are such. While one consumer adds, the other
// multiplies.
#pragma once

#include "common/gemm/wgmma_tile.cuh"

namespace kiln::gemm {

/// Stages are added as they are.
struct NoScales {
  struct Factors {
    __device__ __forceinline__ float of(int, int) const { return 1.0f; }
  };
  __device__ __forceinline__ NoScales at(int, int, int) const { return *this; }
  __device__ __forceinline__ Factors load(int) const { return {}; }
};

/// One scale for each row of x and stage of k, and one for each 128 columns of w and stage.
template <typename Tiles>
struct StageScales {
  static_assert(Tiles::tile_k == scaling_block);
  static_assert(Tiles::swap || Tiles::tile_n % scaling_block == 0 || scaling_block % Tiles::tile_n == 0);
  static constexpr int w_count = Tiles::swap ? Tiles::row_blocks : (Tiles::tile_n + scaling_block - 1) / scaling_block;
  static constexpr int x_count = Tiles::swap ? Tiles::tile_m / 4 : 2 * Tiles::row_blocks;

  const float *x, *w;
  long long x_stride, x_k_stride, w_stride, w_k_stride;
  int rows;           // m
  long long columns;  // n

  /// What a thread's sums of one stage are multiplied by.
  struct Factors {
    float x[x_count], w[w_count];
    /// Of sum `j` of 64-row product `i`.
    __device__ __forceinline__ float of(int i, int j) const {
      if constexpr (Tiles::swap) return x[j / 4 * 2 + j % 2] * w[i];
      return x[i * 2 + j / 2 % 2] * w[j / 4 * 8 / scaling_block];
    }
  };

  /// The scales of one thread in one tile.
  struct OfTile {
    const StageScales& scales;
    int row, column;  // of the thread's first sum

    __device__ __forceinline__ Factors load(int stage) const {
      Factors factors;
#pragma unroll
      for (int i = 0; i < x_count; ++i) {
        const int at = row + (Tiles::swap ? i / 2 * 8 + i % 2 : i / 2 * wgmma_rows + i % 2 * 8);
        factors.x[i] = scales.x[min(at, scales.rows - 1) * scales.x_stride + stage * scales.x_k_stride];
      }
#pragma unroll
      for (int i = 0; i < w_count; ++i) {
        const long long at = min(column + i * (Tiles::swap ? wgmma_rows : scaling_block) + 0ll, scales.columns - 1);
        factors.w[i] = scales.w[at / scaling_block * scales.w_stride + stage * scales.w_k_stride];
      }
      return factors;
    }
  };

  /// The tile at (row, column), of which the warpgroup's rows of a begin at `first`.
  __device__ __forceinline__ OfTile at(int row, int column, int first) const {
    const int thread = threadIdx.x % warpgroup, along_a = first + thread / 32 * 16 + thread % 32 / 4;
    if constexpr (Tiles::swap) return {*this, row + thread % 4 * 2, column + first};
    return {*this, row + along_a, column};
  }
};

/// The products of stages `first_k` and on, `k_tiles` of them, times `scales`, of the first `filled` 64-row products as
/// start_filled_products says. All are done when it returns.
template <typename Tiles, typename Scales>
__device__ __forceinline__ void promote_products(WgmmaSums<Tiles>& sums, const Ring<Tiles>& ring,
                                                 RingPosition<Tiles::stages>& at, const StageOperands<Tiles>& operands,
                                                 int first_k, int k_tiles, int filled, const Scales& scales) {
#pragma unroll
  for (int i = 0; i < Tiles::row_blocks; ++i) {
#pragma unroll
    for (int j = 0; j < Tiles::B::extent / 2; ++j) sums[i][j] = 0.0f;
  }
  auto factors = scales.load(first_k);
#pragma unroll 1
  for (int tile = 0; tile < k_tiles; ++tile, at.advance()) {
    const auto next = scales.load(first_k + min(tile + 1, k_tiles - 1));
    mbarrier_wait(ring.full(at.slot), at.parity);
    const StageOperands<Tiles> stage = operands.at(at.slot);
#pragma unroll
    for (int i = 0; i < Tiles::row_blocks; ++i) {
      if (i >= filled) break;
      float products[Tiles::B::extent / 2];
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < Tiles::k_steps; ++step) stage.multiply(products, i, step, step > 0);
      wgmma_commit_group();
      wgmma_wait_group<0>();
      hold(products);
      if (i == min(filled, Tiles::row_blocks) - 1) ring.release(at.slot);
#pragma unroll
      for (int j = 0; j < Tiles::B::extent / 2; ++j) sums[i][j] = fmaf(products[j], factors.of(i, j), sums[i][j]);
    }
    if (filled <= 0) {
      __syncwarp();  // all lanes have seen the stage before one gives it back
      ring.release(at.slot);
    }
    factors = next;
  }
}

}  // namespace kiln::gemm
