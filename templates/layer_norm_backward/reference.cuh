#pragma once

#include "common/norm_backward_reference.cuh"

namespace kiln {

// Outputs are float, with the strides of the op's own.

template <typename T>
__global__ __launch_bounds__(256) void layer_norm_backward_statistics(const T* x, float* dx, long long cols,
                                                                      long long x_row_stride, long long dx_row_stride,
                                                                      float epsilon) {
  const long long row = blockIdx.x;
  const reference_statistics of = reference_statistics_of<norm_kind::layer>(x + row * x_row_stride, cols, epsilon);
  keep_statistics(dx + row * dx_row_stride, cols, of);
}

template <typename T>
__global__ __launch_bounds__(1024) void layer_norm_backward_parameters(const T* x, const T* dy, const float* dx,
                                                                       float* dweight, float* dbias, long long rows,
                                                                       long long cols, long long x_row_stride,
                                                                       long long dy_row_stride,
                                                                       long long dx_row_stride) {
  reference_parameters<norm_kind::layer>(x, dy, dx, dweight, dbias, rows, cols, x_row_stride, dy_row_stride,
                                         dx_row_stride);
}

template <typename T, residual_mode Residual>
__global__ __launch_bounds__(256) void layer_norm_backward_reference(const T* x, const T* weight, const T* dy,
                                                                     const T* d_sum, float* dx, long long cols,
                                                                     long long x_row_stride, long long dy_row_stride,
                                                                     long long d_sum_row_stride,
                                                                     long long dx_row_stride, float epsilon) {
  const long long row = blockIdx.x;
  reference_dx<norm_kind::layer, Residual>(x + row * x_row_stride, weight, dy + row * dy_row_stride,
                                           d_sum + row * d_sum_row_stride, dx + row * dx_row_stride, cols, epsilon);
}

}  // namespace kiln
