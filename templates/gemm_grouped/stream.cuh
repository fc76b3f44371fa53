// gemm_grouped for the few rows that a group has when decoding: each group's W is read once, at the rate of memory.
// common/gemm/stream_tile.cuh says how.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/gemm/groups.cuh"
#include "common/gemm/stream_tile.cuh"
#include "common/length.cuh"

/// Clusters of `blocks`, block (warps_n * warps_k * 32), grid (the most tiles times blocks). A tile has rows_of_x rows
/// and warps_n * warp_rows columns; the most are those that m rows in so many groups can make. Dynamic shared memory is
/// as common/gemm/stream.part.toml says. Strides in elements; `y_alignment` is the epilogue's.
template <typename X, typename W, typename Config, int rows_of_x, int warp_rows, int warps_n, int warps_k, int stages,
          int blocks, int y_alignment>
__global__ void __launch_bounds__(warps_n* warps_k * 32, 1)
    gemm_grouped_stream(const X* x, const W* w, const int* offsets, typename Config::out* y,
                        const typename Config::out* bias, const typename Config::out* residual, const float* x_scale,
                        const float* w_scale, const float* y_scale, kiln::axis_length rows, long long n, long long k,
                        int groups, long long x_stride, long long w_stride, long long y_stride,
                        long long residual_stride, long long x_scale_stride, long long w_scale_stride,
                        long long x_scale_k_stride, long long w_scale_k_stride, long long w_group_stride,
                        long long bias_group_stride, long long w_scale_group_stride, float scale) {
  using namespace kiln::gemm;
  using Shape = Share<rows_of_x, warp_rows, warps_n, warps_k, stages, blocks>;
  kiln::wait_for_predecessor();

  const int tiles_n = static_cast<int>((n + Shape::block_rows - 1) / Shape::block_rows);
  const GroupTile found =
      find_group_tile(offsets, groups, rows.read(), rows_of_x, tiles_n, static_cast<int>(blockIdx.x) / blocks);
  if (found.group < 0) return;  // the same in all blocks of a cluster
  const epilogue<Config, y_alignment> all = {
      y,     bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
      scale, 0,    n};
  const epilogue<Config, y_alignment> own =
      epilogue_of_group(all, {w_group_stride, bias_group_stride, w_scale_group_stride}, found);
  const StreamOperands<X, W> of = {x + found.first_row * x_stride,
                                   w + found.group * w_group_stride,
                                   x_stride,
                                   w_stride,
                                   own.rows,
                                   n,
                                   k,
                                   own.x_scale,
                                   own.w_scale,
                                   x_scale_stride,
                                   w_scale_stride,
                                   x_scale_k_stride,
                                   w_scale_k_stride};
  // Tiles of the same columns are neighbours: W is read from memory once, and then from L2.
  const int tiles_m = (own.rows + rows_of_x - 1) / rows_of_x;
  stream_tile<Config, Shape>(of, found.tile % tiles_m * rows_of_x,
                             static_cast<long long>(found.tile / tiles_m) * Shape::block_rows, [=] {
                               kiln::launch_dependents();
                               return own;
                             });
}
