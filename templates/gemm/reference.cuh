// gemm in f64, for verification: a 32 x 32 tile of the product a block, one element a thread, both operands through shared
// memory.
#pragma once

#include "common/gemm/reference.cuh"

/// grid (ceil(n / 32), any number of rows of tiles), block (32, 32). Strides in elements.
template <typename X, typename W, kiln::gemm::Layout layout, typename Config>
__global__ void __launch_bounds__(1024)
    gemm_reference(const X* x, const W* w, float* y, const typename Config::out* bias,
                   const typename Config::out* residual, const float* x_scale, const float* w_scale,
                   const float* y_scale, long long m, long long n, long long k, long long x_stride, long long w_stride,
                   long long y_stride, long long residual_stride, long long x_scale_stride, long long w_scale_stride,
                   long long x_scale_k_stride, long long w_scale_k_stride, float scale) {
  using namespace kiln::gemm;
  const ExactOperand<X, x_runs_along_k<layout>, Config::scaling, 1> rows = {
      x, x_scale, x_stride, x_scale_stride, x_scale_k_stride, m, k};
  const ExactOperand<W, w_runs_along_k<layout>, Config::scaling, scaling_block> columns = {
      w, w_scale, w_stride, w_scale_stride, w_scale_k_stride, n, k};
  const ExactEnding<Config> ending = {y, bias, residual, y_scale, y_stride, residual_stride, scale, m, n};
  for (long long first_row = 32ll * blockIdx.y; first_row < m; first_row += 32ll * gridDim.y)
    ending.store(first_row + threadIdx.y, 32ll * blockIdx.x + threadIdx.x,
                 exact_sum(rows, columns, first_row, 32ll * blockIdx.x));
}
