// gemm_batched in f32 arithmetic on the ordinary cores, a tile of one product a block: common/gemm/simt_tile.cuh says how.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/gemm/batch.cuh"
#include "common/gemm/simt_tile.cuh"
#include "common/length.cuh"

/// grid (tiles of m * tiles of n, products), block (256). Strides in elements; `vector` divides those of x and w, also
/// between products, their rows' lengths and, in elements, their addresses.
template <typename X, typename W, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int vector>
__global__ void __launch_bounds__(256, 2)
    gemm_batched_simt(const X* x, const W* w, typename Config::out* y, const typename Config::out* bias,
                      const typename Config::out* residual, const float* x_scale, const float* w_scale,
                      const float* y_scale, kiln::axis_length rows, long long n, long long k, long long x_stride,
                      long long w_stride, long long y_stride, long long residual_stride, long long x_scale_stride,
                      long long w_scale_stride, long long x_scale_k_stride, long long w_scale_k_stride,
                      long long x_batch_stride, long long w_batch_stride, long long y_batch_stride,
                      long long bias_batch_stride, long long residual_batch_stride, long long x_scale_batch_stride,
                      long long w_scale_batch_stride, float scale) {
  using namespace kiln::gemm;
  kiln::wait_for_predecessor();
  kiln::launch_dependents();
  const int m = rows.read();
  const long long tiles_n = (n + tile_n - 1) / tile_n, index = blockIdx.y;
  const long long first_row = blockIdx.x / tiles_n * tile_m, first_column = blockIdx.x % tiles_n * tile_n;
  if (first_row >= m) return;
  const BatchStrides strides = {x_batch_stride,        w_batch_stride,       y_batch_stride,      bias_batch_stride,
                                residual_batch_stride, x_scale_batch_stride, w_scale_batch_stride};
  const epilogue<Config> first = {
      y,     bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
      scale, m,    n};
  const epilogue<Config> own = epilogue_of(first, strides, index);
  simt_tile<X, W, layout, Config, tile_m, tile_n, vector>(
      {x + index * strides.x, w + index * strides.w, own.x_scale, own.w_scale, x_stride, w_stride, x_scale_stride,
       w_scale_stride, x_scale_k_stride, w_scale_k_stride, m, n, k},
      own, first_row, first_column);
}
