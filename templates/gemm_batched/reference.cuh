// gemm_batched in f64, for verification: a 64 x 64 tile of one product a block.
#pragma once

#include "common/gemm/reference.cuh"

/// grid (ceil(n / 64), any number of rows of tiles, products), block (16, 16). Strides in elements.
template <typename X, typename W, kiln::gemm::Layout layout, typename Config>
__global__ void __launch_bounds__(kiln::gemm::exact_threads)
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
  multiply_exactly(rows, columns, 0, ending);
}
