// gemm_grouped in f32 arithmetic on the ordinary cores, a tile of one group's product a block: common/gemm/simt_tile.cuh
// says how.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/gemm/groups.cuh"
#include "common/gemm/simt_tile.cuh"
#include "common/length.cuh"

/// grid (the most tiles that m rows in so many groups can make), block (256). Strides in elements; `vector` divides those
/// of x and w, also between groups, their rows' lengths and, in elements, their addresses.
template <typename X, typename W, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int vector>
__global__ void __launch_bounds__(256, 2)
    gemm_grouped_simt(const X* x, const W* w, const int* offsets, typename Config::out* y,
                      const typename Config::out* bias, const typename Config::out* residual, const float* x_scale,
                      const float* w_scale, const float* y_scale, kiln::axis_length rows, long long n, long long k,
                      int groups, long long x_stride, long long w_stride, long long y_stride, long long residual_stride,
                      long long x_scale_stride, long long w_scale_stride, long long x_scale_k_stride,
                      long long w_scale_k_stride, long long w_group_stride, long long bias_group_stride,
                      long long w_scale_group_stride, float scale) {
  using namespace kiln::gemm;
  kiln::wait_for_predecessor();
  kiln::launch_dependents();
  const int tiles_n = static_cast<int>((n + tile_n - 1) / tile_n);
  const GroupTile of = find_group_tile(offsets, groups, rows.read(), tile_m, tiles_n, static_cast<int>(blockIdx.x));
  if (of.group < 0) return;
  const epilogue<Config> all = {
      y,     bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
      scale, 0,    n};
  const epilogue<Config> own = epilogue_of_group(all, {w_group_stride, bias_group_stride, w_scale_group_stride}, of);
  simt_tile<X, W, layout, Config, tile_m, tile_n, vector>(
      {x + of.first_row * x_stride, w + of.group * w_group_stride, own.x_scale, own.w_scale, x_stride, w_stride,
       x_scale_stride, w_scale_stride, x_scale_k_stride, w_scale_k_stride, own.rows, n, k},
      own, static_cast<long long>(of.tile / tiles_n) * tile_m, static_cast<long long>(of.tile % tiles_n) * tile_n);
}
