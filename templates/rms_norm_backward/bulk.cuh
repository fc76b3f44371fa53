// Blocks that stay and take rows in turn, which the copy engine brings while earlier ones are worked on.
#pragma once

#include "common/length.cuh"
#include "common/norm_backward_bulk.cuh"
#include "common/norm_backward_sum.cuh"

namespace kiln {

/// Blocks: that a multiprocessor holds at once. partial: for each block the sums over its rows that make dweight.
template <typename T, int Threads, int Items, int Stages, int Blocks, residual_mode Residual>
__global__ __launch_bounds__(Threads, Blocks) void rms_norm_backward_bulk(
    const T* x, const T* weight, const T* dy, const T* d_sum, T* dx, float* partial, axis_length rows_given,
    long long cols, long long x_row_stride, long long dy_row_stride, long long d_sum_row_stride,
    long long dx_row_stride, float epsilon) {
  using rows_of = norm_backward_bulk_rows<norm_kind::rms, Residual, T, Threads, Items, Stages>;
  __shared__ typename rows_of::storage shared;
  wait_for_predecessor();
  const int rows = rows_given.read();
  if (blockIdx.x >= rows) return;
  const norm_gradients<T> tensors{
      x, weight, dy, d_sum, dx, x_row_stride, dy_row_stride, d_sum_row_stride, dx_row_stride};
  rows_of(tensors, rows, shared).run(epsilon, partial + blockIdx.x * partial_stride(static_cast<int>(cols)), 0);
}

}  // namespace kiln
