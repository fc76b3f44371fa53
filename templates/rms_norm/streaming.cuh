// A block a row of any length: one pass to add up the squares, a second to scale.
#pragma once

#include "common/norm_forward_kernels.cuh"

namespace kiln {

template <typename T, int Threads, int N, residual_mode Residual, quantise_mode Quantise>
__global__ __launch_bounds__(Threads) void rms_norm_streaming(const T* x, const T* residual, const T* weight,
                                                              const float* y_scale, T* sum, T* y, e4m3* y_quantised,
                                                              float* y_block_scales, axis_length rows_given,
                                                              long long cols, long long x_row_stride,
                                                              long long residual_row_stride, long long sum_row_stride,
                                                              long long y_row_stride, long long block_scale_row_stride,
                                                              long long block_scale_stride, float epsilon) {
  norm_streaming<norm_kind::rms, Residual, Quantise, Threads, N, T>(
      {x, residual, weight, nullptr, y_scale, sum, y, y_quantised, y_block_scales, x_row_stride, residual_row_stride,
       sum_row_stride, y_row_stride, block_scale_row_stride, block_scale_stride},
      rows_given, cols, epsilon);
}

}  // namespace kiln
