// gemm_grouped in f64, for verification: a 64 x 64 tile of one group's product a block at a time.
#pragma once

#include "common/gemm/reference.cuh"

/// grid (ceil(n / 64), any number of rows of tiles), block (16, 16). Strides in elements.
template <typename X, typename W, kiln::gemm::Layout layout, typename Config>
__global__ void __launch_bounds__(kiln::gemm::exact_threads)
    gemm_grouped_reference(const X* x, const W* w, const int* offsets, float* y, const typename Config::out* bias,
                           const typename Config::out* residual, const float* x_scale, const float* w_scale,
                           const float* y_scale, long long n, long long k, long long groups, long long x_stride,
                           long long w_stride, long long y_stride, long long residual_stride, long long x_scale_stride,
                           long long w_scale_stride, long long x_scale_k_stride, long long w_scale_k_stride,
                           long long w_group_stride, long long bias_group_stride, long long w_scale_group_stride,
                           float scale) {
  using namespace kiln::gemm;
  for (long long group = 0; group < groups; ++group) {
    const long long end = offsets[group + 1];
    const ExactOperand<X, true, Config::scaling, 1> rows = {x,   x_scale, x_stride, x_scale_stride, x_scale_k_stride,
                                                            end, k};
    const ExactOperand<W, w_runs_along_k<layout>, Config::scaling, scaling_block> columns = {
        w + group * w_group_stride,
        w_scale + group * w_scale_group_stride,
        w_stride,
        w_scale_stride,
        w_scale_k_stride,
        n,
        k};
    const ExactEnding<Config> ending = {y,        bias == nullptr ? nullptr : bias + group * bias_group_stride,
                                        residual, y_scale,
                                        y_stride, residual_stride,
                                        scale,    end,
                                        n};
    multiply_exactly(rows, columns, offsets[group], ending);
  }
}
