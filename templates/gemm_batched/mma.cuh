// gemm_batched on the tensor cores of sm_80 and later, a tile of one product a block: common/gemm/mma_tile.cuh says how.
// Rows of x and w as stored, of y and of the residual begin at multiples of 16 bytes, in every product.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/gemm/batch.cuh"
#include "common/gemm/mma_tile.cuh"
#include "common/length.cuh"

/// grid (tiles of m * tiles of n, products) for the most rows there may be, block (warps * 32), dynamic shared memory as
/// mma.toml says. Strides in elements.
template <typename T, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int tile_k, int warps,
          int stages>
__global__ void __launch_bounds__(warps * 32, 1)
    gemm_batched_mma(const T* x, const T* w, typename Config::out* y, const typename Config::out* bias,
                     const typename Config::out* residual, const float* x_scale, const float* w_scale,
                     const float* y_scale, kiln::axis_length rows, long long n, long long k, long long x_stride,
                     long long w_stride, long long y_stride, long long residual_stride, long long x_scale_stride,
                     long long w_scale_stride, long long x_batch_stride, long long w_batch_stride,
                     long long y_batch_stride, long long bias_batch_stride, long long residual_batch_stride,
                     long long x_scale_batch_stride, long long w_scale_batch_stride, float scale, int group) {
  using namespace kiln::gemm;
  using Tiles = Tiling<layout, tile_m, tile_n, tile_k, warps, stages>;
  extern __shared__ __align__(128) char ring[];
  kiln::wait_for_predecessor();
  kiln::launch_dependents();

  const int m = rows.read();
  const int tiles_m = (m + tile_m - 1) / tile_m, tiles_n = static_cast<int>((n + tile_n - 1) / tile_n);
  if (static_cast<int>(blockIdx.x) >= tiles_m * tiles_n) return;
  const TileIndex tile = tile_in_bands(static_cast<int>(blockIdx.x), tiles_m, tiles_n, group);
  const long long first_row = static_cast<long long>(tile.m) * tile_m,
                  first_column = static_cast<long long>(tile.n) * tile_n;
  Accumulators<Tiles> sums = {};
  multiply_tile<T, Tiles>(sums, ring,
                          {x + blockIdx.y * x_batch_stride, w + blockIdx.y * w_batch_stride, x_stride, w_stride, m, n},
                          first_row, first_column, 0, static_cast<int>(k), static_cast<int>((k + tile_k - 1) / tile_k));

  const BatchStrides strides = {x_batch_stride,        w_batch_stride,       y_batch_stride,      bias_batch_stride,
                                residual_batch_stride, x_scale_batch_stride, w_scale_batch_stride};
  const int last_m = rows.read();  // again: a register held through the product is dear
  const AlignedEpilogue<Config> first = {
      y,     bias,   residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
      scale, last_m, n};
  store_tile<Tiles>(sums, ring, epilogue_of(first, strides, blockIdx.y), first_row, first_column);
}
