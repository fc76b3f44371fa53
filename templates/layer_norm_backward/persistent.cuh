// Blocks that stay and take rows in turn, read once into shared memory while earlier ones are worked on.
#pragma once

#include "common/length.cuh"
#include "common/norm_backward.cuh"
#include "common/norm_backward_sum.cuh"

namespace kiln {

/// Blocks: that a multiprocessor holds at once. partial: for each block the sums over its rows that make dweight, then the same for dbias.
template <typename T, int Threads, int Lanes, int Items, int Stages, int Blocks, bool Whole, residual_mode Residual>
__global__ __launch_bounds__(Threads, Blocks) void layer_norm_backward_persistent(
    const T* x, const T* weight, const T* dy, const T* d_sum, T* dx, float* partial, axis_length rows_given,
    long long cols, long long x_row_stride, long long dy_row_stride, long long d_sum_row_stride,
    long long dx_row_stride, float epsilon) {
  wait_for_predecessor();
  using rows_of = norm_backward_rows<norm_kind::layer, Residual, T, Threads, Lanes, Items, Stages, Whole>;
  __shared__ typename rows_of::sums_type::scratch scratch;
  const int rows = rows_given.read(), width = static_cast<int>(cols);
  if (blockIdx.x * rows_of::rows_at_once >= rows) return;
  const norm_gradients<T> tensors{
      x, weight, dy, d_sum, dx, x_row_stride, dy_row_stride, d_sum_row_stride, dx_row_stride};
  rows_of(tensors, rows, width)
      .run(epsilon, partial + blockIdx.x * partial_stride(width), gridDim.x * partial_stride(width), scratch);
}

}  // namespace kiln
