// A block a row: the row is read once, its exponentials are kept in registers, and it is written once.
#pragma once

#include "exponentials.cuh"

namespace kiln {

template <typename T, int Threads, int N, int Items>
__global__ __launch_bounds__(Threads) void softmax_block_row(const T* x, T* y, long long columns,
                                                             long long x_row_stride, long long y_row_stride) {
  using share = row_share<T, Threads, N, Items>;
  constexpr int warps = Threads / 32;
  __shared__ softmax_state scratch[warps];
  const int cols = static_cast<int>(columns);
  const T* source = x + blockIdx.x * x_row_stride;
  const int peel = peel_of<N>(source, cols);
  const share values = share::load_row(source, cols, threadIdx.x, peel, from_float<T>(-infinity()));

  const exponentials<T, Threads, N, Items> part(values);
  const softmax_state whole = block_reduce<warps>(part.state, softmax_state::empty(), merge{}, scratch);
  part.scaled(whole).store_row(y + blockIdx.x * y_row_stride, cols, threadIdx.x, peel);
}

}  // namespace kiln
