// gemm on the tensor cores of sm_80 and later, a tile of y a block: common/gemm/mma_tile.cuh says how.
//
// When the tiles of y are too few to fill the device, k is split over gridDim.y. Partial sums then go to a workspace,
// and gemm_reduce adds them in a fixed order.
// REQUIRES: rows of x and w as stored, their strides and addresses are multiples of 16 bytes. Rows of y and of the
// residual have aligned strides and addresses, and any length.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/gemm/epilogue.cuh"
#include "common/gemm/mma_tile.cuh"
#include "common/length.cuh"

namespace kiln::gemm {

/// Row length of the partial sums, so that every access of 4 of them is aligned.
__device__ __forceinline__ long long partial_stride(long long n) { return (n + 7) / 8 * 8; }

}  // namespace kiln::gemm

/// grid (tiles of m * tiles of n, splits) for the most rows there may be, block (warps * 32). Dynamic shared memory is
/// as mma.toml says. The matrices x and w lie as `layout` says. `partial` is [splits, m, round_up(n, 8)] and takes the
/// sums when `split`. All else is the epilogue's; m is the length that `rows` holds. Strides in elements.
template <typename T, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int tile_k, int warps,
          int stages, bool split>
__global__ void __launch_bounds__(warps * 32, 1)
    gemm_mma(const T* x, const T* w, typename Config::out* y, const typename Config::out* bias,
             const typename Config::out* residual, const float* x_scale, const float* w_scale, const float* y_scale,
             float* partial, kiln::axis_length rows, long long n, long long k, long long x_stride, long long w_stride,
             long long y_stride, long long residual_stride, long long x_scale_stride, long long w_scale_stride,
             float scale, int group, int splits) {
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

  // Whole tiles of k for each split; the last ones may have fewer, or none.
  const int tiles_k = static_cast<int>((k + tile_k - 1) / tile_k), tiles_a_split = (tiles_k + splits - 1) / splits;
  const int first_tile = static_cast<int>(blockIdx.y) * tiles_a_split;
  const int k_tiles = max(0, min(tiles_a_split, tiles_k - first_tile));
  const long long first_k = static_cast<long long>(first_tile) * tile_k;
  Accumulators<Tiles> sums = {};
  multiply_tile<T, Tiles>(sums, ring, {x, w, x_stride, w_stride, m, n}, first_row, first_column, first_k,
                          static_cast<int>(k - first_k), k_tiles);

  const int last_m = rows.read();  // again: a register held through the product is dear
  if constexpr (split) {
    const long long stride = partial_stride(n);
    const long long row_of_part = first_row + part_row<Tiles>(), column_of_part = first_column + part_column<Tiles>();
    float* const to = partial + (blockIdx.y * static_cast<long long>(last_m) + row_of_part) * stride + column_of_part;
    drain<Tiles>(sums, staging_of_warp<Tiles>(ring), [&](int row, int column, const float(&values)[8]) {
      if (row_of_part + row >= last_m || column_of_part + column >= n) return;
      float4* const eight = reinterpret_cast<float4*>(to + row * stride + column);
      __stwb(eight, make_float4(values[0], values[1], values[2], values[3]));
      __stwb(eight + 1, make_float4(values[4], values[5], values[6], values[7]));
    });
  } else {
    store_tile<Tiles>(sums, ring,
                      AlignedEpilogue<Config>{y, bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride,
                                              x_scale_stride, w_scale_stride, scale, last_m, n},
                      first_row, first_column);
  }
}

/// The epilogue of the sums over splits of `partial`: grid (ceil(m * ceil(n / 4) / 128)), block (128), four neighbours a
/// thread. Splits are added in their order, so the result does not depend on which block finished first.
template <typename Config>
__global__ void __launch_bounds__(128)
    gemm_reduce(const float* partial, typename Config::out* y, const typename Config::out* bias,
                const typename Config::out* residual, const float* x_scale, const float* w_scale, const float* y_scale,
                kiln::axis_length rows, long long n, long long y_stride, long long residual_stride,
                long long x_scale_stride, long long w_scale_stride, float scale, int splits) {
  using namespace kiln::gemm;
  kiln::wait_for_predecessor();
  const int m = rows.read();
  const long long stride = partial_stride(n), groups = (n + 3) / 4, index = blockIdx.x * 128ll + threadIdx.x;
  const long long row = index / groups, column = index % groups * 4;
  if (row >= m) return;

  float sums[4] = {};
  const float* from = partial + row * stride + column;
#pragma unroll 4
  for (int split = 0; split < splits; ++split, from += m * stride) {
    const kiln::vec<float, 4> values = kiln::load<4>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += values.at[i];
  }
  const AlignedEpilogue<Config> epilogue = {
      y,     bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
      scale, m,    n};
  epilogue.template store<4>(static_cast<int>(row), column, sums);
}
