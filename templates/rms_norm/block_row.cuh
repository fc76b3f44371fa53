// A block a row: the row is read once, kept in registers, and written once.
#pragma once

#include "common/reduce.cuh"
#include "common/row.cuh"
#include "squares.cuh"

namespace kiln {

template <typename T, int Threads, int N, int Items>
__global__ __launch_bounds__(Threads) void rms_norm_block_row(const T* x, const T* weight, T* y, long long columns,
                                                              long long x_row_stride, long long y_row_stride,
                                                              float epsilon) {
  using share = row_share<T, Threads, N, Items>;
  constexpr int warps = Threads / 32;
  __shared__ float scratch[warps];
  const int cols = static_cast<int>(columns);
  const int thread = threadIdx.x;
  const T zero = from_float<T>(0);
  const T* source = x + blockIdx.x * x_row_stride;
  const int peel = peel_of<N>(source, cols);
  const share values = share::load_row(source, cols, thread, peel, zero);
  const share weights = share::load_beside(weight, cols, thread, peel, zero);

  const float squares = sum_of_squares(values);
  const float total = block_reduce<warps>(warp_reduce(squares, add{}), 0.0f, add{}, scratch);
  const float scale = rsqrtf(total / static_cast<float>(cols) + epsilon);
  const share normed = values.map(
      weights, [scale](T value, T factor) { return from_float<T>(to_float(value) * scale * to_float(factor)); });
  normed.store_row(y + blockIdx.x * y_row_stride, cols, thread, peel);
}

}  // namespace kiln
