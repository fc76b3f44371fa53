// gemm_grouped on the tensor cores of sm_80 and later, a tile of one group's product a block: common/gemm/mma_tile.cuh
// says how. Rows of x and w as stored, of y and of the residual begin at multiples of 16 bytes, in every group.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/gemm/groups.cuh"
#include "common/gemm/mma_tile.cuh"
#include "common/length.cuh"

/// grid (the most tiles that m rows in so many groups can make), block (warps * 32), dynamic shared memory as mma.toml
/// says. A group's tiles are neighbours, so that they share its w in L2. Strides in elements.
template <typename T, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int tile_k, int warps,
          int stages>
__global__ void __launch_bounds__(warps * 32, 1)
    gemm_grouped_mma(const T* x, const T* w, const int* offsets, typename Config::out* y,
                     const typename Config::out* bias, const typename Config::out* residual, const float* x_scale,
                     const float* w_scale, const float* y_scale, kiln::axis_length rows, long long n, long long k,
                     int groups, long long x_stride, long long w_stride, long long y_stride, long long residual_stride,
                     long long x_scale_stride, long long w_scale_stride, long long w_group_stride,
                     long long bias_group_stride, long long w_scale_group_stride, float scale, int band) {
  using namespace kiln::gemm;
  using Tiles = Tiling<layout, tile_m, tile_n, tile_k, warps, stages>;
  extern __shared__ __align__(128) char ring[];
  kiln::wait_for_predecessor();
  kiln::launch_dependents();

  const int tiles_n = static_cast<int>((n + tile_n - 1) / tile_n);
  const GroupTile of = find_group_tile(offsets, groups, rows.read(), tile_m, tiles_n, static_cast<int>(blockIdx.x));
  if (of.group < 0) return;
  const int m = of.end_row - of.first_row;
  const TileIndex tile = tile_in_bands(of.tile, (m + tile_m - 1) / tile_m, tiles_n, band);
  const long long first_row = static_cast<long long>(tile.m) * tile_m,
                  first_column = static_cast<long long>(tile.n) * tile_n;
  Accumulators<Tiles> sums = {};
  multiply_tile<T, Tiles>(sums, ring,
                          {x + of.first_row * x_stride, w + of.group * w_group_stride, x_stride, w_stride, m, n},
                          first_row, first_column, 0, static_cast<int>(k), static_cast<int>((k + tile_k - 1) / tile_k));

  const AlignedEpilogue<Config> all = {
      y,     bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
      scale, 0,    n};
  store_tile<Tiles>(sums, ring, epilogue_of_group(all, {w_group_stride, bias_group_stride, w_scale_group_stride}, of),
                    first_row, first_column);
}
