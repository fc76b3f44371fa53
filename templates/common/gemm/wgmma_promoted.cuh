// The main loop for 8-bit floats. Tensor cores keep few places of their sums. So each stage (128 of k) is summed afresh
// and then added in f32, times the scales of its block where there are such. Meanwhile the next products are under way,
// where registers allow it.
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
    /// The scale of sum `j` of 64-row product `i`.
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

/// How the products of a stage are cut into units: 64 rows of a by all of b, or by half of it. Each unit is summed in
/// registers of its own and then added. Where a thread has room for two units, one is added while the next is
/// multiplied.
template <typename Tiles>
struct PromotedUnits {
  static constexpr int extent = Tiles::B::extent;
  static constexpr int room = (Tiles::consumers == 3 ? 128 : 216) - Tiles::row_blocks * extent / 2;  // registers
  static constexpr int halves = room < extent && extent >= 160 && extent % 32 == 0 ? 2 : 1;
  static constexpr int width = extent / halves, count = Tiles::row_blocks * halves;  // of a stage
  static constexpr bool ahead = room >= width && count <= 2;
  using Products = float[width / 2];

  static __device__ __forceinline__ void start(Products& products, const StageOperands<Tiles>& stage, int unit) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tiles::k_steps; ++step)
      stage.template multiply_by<width>(products, unit / halves, step, step > 0, unit % halves * width);
    wgmma_commit_group();
  }
  template <typename Factors>
  static __device__ __forceinline__ void add(WgmmaSums<Tiles>& sums, Products& products, const Factors& factors,
                                             int unit) {
    const int i = unit / halves, first = unit % halves * (width / 2);
    hold(products);
#pragma unroll
    for (int j = 0; j < width / 2; ++j)
      sums[i][first + j] = fmaf(products[j], factors.of(i, first + j), sums[i][first + j]);
  }
};

/// Waits for the stage where `at` stands.
template <typename Tiles>
__device__ __forceinline__ StageOperands<Tiles> next_stage(const Ring<Tiles>& ring,
                                                           const RingPosition<Tiles::stages>& at,
                                                           const StageOperands<Tiles>& operands) {
  mbarrier_wait(ring.full(at.slot), at.parity);
  return operands.at(at.slot);
}

/// promote_products for a stage of two units. The second of a stage is under way while the first is added, and the
/// first of the next stage while the second is.
template <typename Tiles, typename Scales>
__device__ __forceinline__ void promote_pairs(WgmmaSums<Tiles>& sums, const Ring<Tiles>& ring,
                                              RingPosition<Tiles::stages>& at, const StageOperands<Tiles>& operands,
                                              int first_k, int k_tiles, const Scales& scales) {
  using Units = PromotedUnits<Tiles>;
  typename Units::Products first, second;
  auto factors = scales.load(first_k);
  StageOperands<Tiles> stage = next_stage(ring, at, operands);
  Units::start(first, stage, 0);
  int tile = 1;
#pragma unroll 1
  for (; tile < k_tiles; ++tile) {
    const auto next = scales.load(first_k + tile);
    const int held = at.slot;
    Units::start(second, stage, 1);
    wgmma_wait_group<1>();
    Units::add(sums, first, factors, 0);
    at.advance();
    stage = next_stage(ring, at, operands);
    Units::start(first, stage, 0);
    wgmma_wait_group<1>();
    ring.release(held);
    Units::add(sums, second, factors, 1);
    factors = next;
  }
  if (tile == k_tiles) {  // always: ptxas keeps products under way only where it cannot join this end with the loop
    Units::start(second, stage, 1);
    wgmma_wait_group<1>();
    Units::add(sums, first, factors, 0);
    wgmma_wait_group<0>();
    ring.release(at.slot);
    at.advance();
    Units::add(sums, second, factors, 1);
  } else {
    wgmma_wait_group<0>();
    Units::add(sums, first, factors, 0);
  }
}

/// promote_products for a stage of one unit: that of the next stage is under way while one is added.
template <typename Tiles, typename Scales>
__device__ __forceinline__ void promote_in_turns(WgmmaSums<Tiles>& sums, const Ring<Tiles>& ring,
                                                 RingPosition<Tiles::stages>& at, const StageOperands<Tiles>& operands,
                                                 int first_k, int k_tiles, const Scales& scales) {
  using Units = PromotedUnits<Tiles>;
  typename Units::Products even, odd;
  auto even_factors = scales.load(first_k);
  int even_slot = at.slot;
  Units::start(even, next_stage(ring, at, operands), 0);
  at.advance();
  int tile = 1;  // that comes next
#pragma unroll 1
  for (; tile + 1 < k_tiles; tile += 2) {
    const auto odd_factors = scales.load(first_k + tile);
    const int odd_slot = at.slot;
    Units::start(odd, next_stage(ring, at, operands), 0);
    at.advance();
    wgmma_wait_group<1>();
    ring.release(even_slot);
    Units::add(sums, even, even_factors, 0);
    even_factors = scales.load(first_k + tile + 1);
    even_slot = at.slot;
    Units::start(even, next_stage(ring, at, operands), 0);
    at.advance();
    wgmma_wait_group<1>();
    ring.release(odd_slot);
    Units::add(sums, odd, odd_factors, 0);
  }
  if (tile < k_tiles) {
    const auto odd_factors = scales.load(first_k + tile);
    const int odd_slot = at.slot;
    Units::start(odd, next_stage(ring, at, operands), 0);
    at.advance();
    wgmma_wait_group<1>();
    ring.release(even_slot);
    Units::add(sums, even, even_factors, 0);
    wgmma_wait_group<0>();
    ring.release(odd_slot);
    Units::add(sums, odd, odd_factors, 0);
  } else {
    wgmma_wait_group<0>();
    ring.release(even_slot);
    Units::add(sums, even, even_factors, 0);
  }
}

/// promote_products where there is no room for a second unit: the other consumers multiply while this one adds.
template <typename Tiles, typename Scales>
__device__ __forceinline__ void promote_each(WgmmaSums<Tiles>& sums, const Ring<Tiles>& ring,
                                             RingPosition<Tiles::stages>& at, const StageOperands<Tiles>& operands,
                                             int first_k, int k_tiles, int filled, const Scales& scales) {
  using Units = PromotedUnits<Tiles>;
  auto factors = scales.load(first_k);
#pragma unroll 1
  for (int tile = 0; tile < k_tiles; ++tile, at.advance()) {
    const auto next = scales.load(first_k + min(tile + 1, k_tiles - 1));
    const StageOperands<Tiles> stage = next_stage(ring, at, operands);
#pragma unroll
    for (int unit = 0; unit < Units::count; ++unit) {
      if (unit / Units::halves >= filled) break;
      typename Units::Products products;
      Units::start(products, stage, unit);
      wgmma_wait_group<0>();
      if (unit == min(filled, Tiles::row_blocks) * Units::halves - 1) ring.release(at.slot);
      Units::add(sums, products, factors, unit);
    }
    factors = next;
  }
}

/// The products of stages `first_k` and on, `k_tiles` of them, times `scales`, of the first `filled` 64-row products as
/// start_filled_products says. All are done when it returns.
template <typename Tiles, typename Scales>
__device__ __forceinline__ void promote_products(WgmmaSums<Tiles>& sums, const Ring<Tiles>& ring,
                                                 RingPosition<Tiles::stages>& at, const StageOperands<Tiles>& operands,
                                                 int first_k, int k_tiles, int filled, const Scales& scales) {
  using Units = PromotedUnits<Tiles>;
#pragma unroll
  for (int i = 0; i < Tiles::row_blocks; ++i) {
#pragma unroll
    for (int j = 0; j < Tiles::B::extent / 2; ++j) sums[i][j] = 0.0f;
  }
  if (filled <= 0) {
    for (int tile = 0; tile < k_tiles; ++tile, at.advance()) {
      mbarrier_wait(ring.full(at.slot), at.parity);
      __syncwarp();  // all lanes have seen the stage before one gives it back
      ring.release(at.slot);
    }
  } else if constexpr (Units::ahead && Units::count == 2) {
    promote_pairs<Tiles>(sums, ring, at, operands, first_k, k_tiles, scales);
  } else if constexpr (Units::ahead) {
    promote_in_turns<Tiles>(sums, ring, at, operands, first_k, k_tiles, scales);
  } else {
    promote_each<Tiles>(sums, ring, at, operands, first_k, k_tiles, filled, scales);
  }
}

}  // namespace kiln::gemm
