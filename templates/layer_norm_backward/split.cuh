// A kernel for what belongs to rows and one for what belongs to columns, for any length and alignment.
#pragma once

#include "common/length.cuh"
#include "common/norm_backward_split.cuh"
#include "common/norm_backward_sum.cuh"

namespace kiln {

/// A block a row: dx, and the row's statistics for the sums over rows.
template <typename T, int Threads, int N, residual_mode Residual>
__global__ __launch_bounds__(Threads) void layer_norm_backward_row(const T* x, const T* weight, const T* dy,
                                                                   const T* d_sum, T* dx, float2* statistics,
                                                                   axis_length rows_given, long long cols,
                                                                   long long x_row_stride, long long dy_row_stride,
                                                                   long long d_sum_row_stride, long long dx_row_stride,
                                                                   float epsilon) {
  __shared__ typename gradient_sums<norm_kind::layer, Threads>::scratch scratch;
  wait_for_predecessor();
  if (blockIdx.x >= rows_given.read()) return;
  const norm_gradients<T> tensors{
      x, weight, dy, d_sum, dx, x_row_stride, dy_row_stride, d_sum_row_stride, dx_row_stride};
  statistics[blockIdx.x] = norm_backward_row<norm_kind::layer, Residual, Threads, N>(
      tensors, blockIdx.x, static_cast<int>(cols), epsilon, scratch);
}

/// Partial sums of a column over one of gridDim.y shares of the rows, a thread a column.
template <typename T>
__global__ __launch_bounds__(128) void layer_norm_backward_columns(const T* x, const T* dy, const float2* statistics,
                                                                   float* partial, axis_length rows_given,
                                                                   long long cols, long long x_row_stride,
                                                                   long long dy_row_stride) {
  wait_for_predecessor();
  norm_backward_columns<norm_kind::layer>(x, dy, statistics, partial, rows_given.read(), static_cast<int>(cols),
                                          x_row_stride, dy_row_stride);
}

}  // namespace kiln
