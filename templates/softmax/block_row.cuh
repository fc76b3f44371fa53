// A block a row: the row is read once, its exponentials are kept in registers, and it is written once.
#pragma once

#include "common/row.cuh"
#include "exponentials.cuh"

namespace kiln {

/// Resident 0: a block for each row. Otherwise the grid is as many blocks as the device holds at once, Resident to a
/// multiprocessor, and each loads its next row before it reduces the present one.
template <typename T, int Threads, int N, int Items, int Resident>
__global__ __launch_bounds__(Threads) void softmax_block_row(const T* x, T* y, long long rows, long long columns,
                                                             long long x_row_stride, long long y_row_stride) {
  using share = row_share<T, Threads, N, Items>;
  constexpr int warps = Threads / 32;
  __shared__ softmax_state scratch[2][warps];
  const int cols = static_cast<int>(columns);

  for_each_row<share, (Resident > 0), N>(
      x, x_row_stride, rows, cols, from_float<T>(-infinity()), [&](long long row, const share& values, int peel, int turn) {
        const exponentials<T, Threads, N, Items> part(values);
        const softmax_state whole = block_reduce<warps>(part.state, softmax_state::empty(), merge{}, scratch[turn]);
        part.scaled(whole).store_row(y + row * y_row_stride, cols, threadIdx.x, peel);
      });
}

}  // namespace kiln
