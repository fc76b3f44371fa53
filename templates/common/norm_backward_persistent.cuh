// Backward of the norms by blocks that stay: rows come into shared memory piece by piece, for each thread its own.
#pragma once

#include "common/length.cuh"
#include "common/norm_backward.cuh"

namespace kiln {

/// Blocks: that a multiprocessor holds at once. partial: for each block the sums over its rows that make dweight, then, for layer_norm, the
/// same for dbias.
template <norm_kind Kind, typename T, int Threads, int Lanes, int Items, int Stages, int Blocks, bool Whole,
          residual_mode Residual>
__global__ __launch_bounds__(Threads,
                             Blocks) void norm_backward_persistent(const __grid_constant__ norm_gradients<T> given,
                                                                   float* partial, axis_length rows_given,
                                                                   long long cols, float epsilon) {
  wait_for_predecessor();
  using rows_of = norm_backward_rows<Kind, Residual, T, Threads, Lanes, Items, Stages, Whole>;
  __shared__ typename rows_of::sums_type::scratch scratch;
  const int rows = rows_given.read(), width = static_cast<int>(cols);
  if (blockIdx.x * rows_of::rows_at_once >= rows) return;
  const norm_gradients<T> tensors = in_registers(given);
  rows_of(tensors, rows, width)
      .run(epsilon, partial + blockIdx.x * partial_stride(width),
           Kind == norm_kind::layer ? gridDim.x * partial_stride(width) : 0, scratch);
}

}  // namespace kiln
