// gemm_batched in f64, for verification: a 32 x 32 tile of one product a block, one element a thread.
#pragma once

#include "common/gemm/reference.cuh"

/// grid (ceil(n / 32), any number of rows of tiles, products), block (32, 32). Strides in elements.
template <typename X, typename W, kiln::gemm::Layout layout, typename Config>
__global__ void __launch_bounds__(1024)
    gemm_batched_reference(const X* x, const W* w, float* y, const typename Config::out* bias,
                           const typename Config::out* residual, const float* x_scale, const float* w_scale,
                           const float* y_scale, long long m, long long n, long long k, long long x_stride,
                           long long w_stride, long long y_stride, long long residual_stride, long long x_scale_stride,
                           long long w_scale_stride, long long x_scale_k_stride, long long w_scale_k_stride,
                           long long x_batch_stride, long long w_batch_stride, long long y_batch_stride,
                           long long bias_batch_stride, long long residual_batch_stride, long long x_scale_batch_stride,
                           long long w_scale_batch_stride, float scale) {
  using namespace kiln::gemm;
  const long long index = blockIdx.z;
  const ExactOperand<X, x_runs_along_k<layout>, Config::scaling, 1> rows = {x + index * x_batch_stride,
                                                                            x_scale + index * x_scale_batch_stride,
                                                                            x_stride,
                                                                            x_scale_stride,
                                                                            x_scale_k_stride,
                                                                            m,
                                                                            k};
  const ExactOperand<W, w_runs_along_k<layout>, Config::scaling, scaling_block> columns = {
      w + index * w_batch_stride,
      w_scale + index * w_scale_batch_stride,
      w_stride,
      w_scale_stride,
      w_scale_k_stride,
      n,
      k};
  const ExactEnding<Config> ending = {y + index * y_batch_stride,
                                      bias == nullptr ? nullptr : bias + index * bias_batch_stride,
                                      residual + index * residual_batch_stride,
                                      y_scale,
                                      y_stride,
                                      residual_stride,
                                      scale,
                                      m,
                                      n};
  for (long long first_row = 32ll * blockIdx.y; first_row < m; first_row += 32ll * gridDim.y)
    ending.store(first_row + threadIdx.y, 32ll * blockIdx.x + threadIdx.x,
                 exact_sum(rows, columns, first_row, 32ll * blockIdx.x));
}
