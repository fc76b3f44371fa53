// gemm for the few rows of x that decoding has: W is read once, at the rate of memory. common/gemm/stream_tile.cuh says how.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/gemm/stream_tile.cuh"
#include "common/length.cuh"

/// For at most rows_of_x rows. Clusters of `blocks`: grid (ceil(n / (warps_n * warp_rows)) * blocks), block (warps_n * warps_k
/// * 32), dynamic shared memory as stream.toml says. Strides in elements; `y_alignment` is the epilogue's.
template <typename X, typename W, typename Config, int rows_of_x, int warp_rows, int warps_n, int warps_k, int stages,
          int blocks, int y_alignment>
__global__ void __launch_bounds__(warps_n* warps_k * 32, 1)
    gemm_stream(const X* x, const W* w, typename Config::out* y, const typename Config::out* bias,
                const typename Config::out* residual, const float* x_scale, const float* w_scale, const float* y_scale,
                kiln::axis_length rows, long long n, long long k, long long x_stride, long long w_stride,
                long long y_stride, long long residual_stride, long long x_scale_stride, long long w_scale_stride,
                long long x_scale_k_stride, long long w_scale_k_stride, float scale) {
  using namespace kiln::gemm;
  using Shape = Share<rows_of_x, warp_rows, warps_n, warps_k, stages, blocks>;
  kiln::wait_for_predecessor();

  // x is read up to the bound: a length that lies in memory is waited for while copies are on their way.
  const StreamOperands<X, W> of = {x,
                                   w,
                                   x_stride,
                                   w_stride,
                                   rows.bound,
                                   n,
                                   k,
                                   x_scale,
                                   w_scale,
                                   x_scale_stride,
                                   w_scale_stride,
                                   x_scale_k_stride,
                                   w_scale_k_stride};
  const long long column = static_cast<long long>(blockIdx.x) / blocks * Shape::block_rows;
  stream_tile<Config, Shape>(of, 0, column, [=] {
    kiln::launch_dependents();
    return epilogue<Config, y_alignment>{y,
                                         bias,
                                         residual,
                                         x_scale,
                                         w_scale,
                                         y_scale,
                                         y_stride,
                                         residual_stride,
                                         x_scale_stride,
                                         w_scale_stride,
                                         scale,
                                         rows.read(),
                                         n};
  });
}
