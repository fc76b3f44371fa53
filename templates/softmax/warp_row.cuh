// Several rows a block, each shared by up to a warp's lanes: no barrier, for rows too short to fill a block.
#pragma once

#include "exponentials.cuh"

namespace kiln {

/// Each group of Lanes lanes takes Batch rows and loads all of them before it reduces the first.
template <typename T, int Threads, int Lanes, int N, int Items, int Batch>
__global__ __launch_bounds__(Threads) void softmax_warp_row(const T* x, T* y, long long rows, long long columns,
                                                            long long x_row_stride, long long y_row_stride) {
  using share = row_share<T, Lanes, N, Items>;
  const int lane = threadIdx.x % Lanes;
  const long long first_row = (static_cast<long long>(blockIdx.x) * (Threads / Lanes) + threadIdx.x / Lanes) * Batch;
  const auto cols_of = [&](long long row) { return row < rows ? static_cast<int>(columns) : 0; };  // past the end: an empty row

  share values[Batch];
  int peel[Batch];
#pragma unroll
  for (int i = 0; i < Batch; ++i) {
    const T* source = x + (first_row + i) * x_row_stride;
    peel[i] = peel_of<N>(source, cols_of(first_row + i));
    values[i] = share::template load_row<true>(source, cols_of(first_row + i), lane, peel[i], from_float<T>(-infinity()));
  }
#pragma unroll
  for (int i = 0; i < Batch; ++i) {
    const exponentials<T, Lanes, N, Items, Lanes> row(values[i]);
    row.scaled(row.state).store_row(y + (first_row + i) * y_row_stride, cols_of(first_row + i), lane, peel[i]);
  }
}

}  // namespace kiln
