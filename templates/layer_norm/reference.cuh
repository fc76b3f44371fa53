#pragma once

#include "common/norm_reference.cuh"

namespace kiln {

/// Outputs are float, with the strides of the op's own.
template <typename T, residual_mode Residual, quantise_mode Quantise>
__global__ __launch_bounds__(256) void layer_norm_reference(const T* x, const T* residual, const T* weight,
                                                            const T* bias, const float* y_scale, float* sum, float* y,
                                                            float* y_quantised, float* y_block_scales, long long cols,
                                                            long long x_row_stride, long long residual_row_stride,
                                                            long long sum_row_stride, long long y_row_stride,
                                                            long long block_scale_row_stride,
                                                            long long block_scale_stride, float epsilon) {
  const long long row = blockIdx.x;
  reference_norm<norm_kind::layer, Residual, Quantise>(
      x + row * x_row_stride, residual + row * residual_row_stride, weight, bias, y_scale, sum + row * sum_row_stride,
      y + row * y_row_stride, y_quantised + row * y_row_stride, y_block_scales + row * block_scale_row_stride,
      block_scale_stride, cols, epsilon);
}

}  // namespace kiln
