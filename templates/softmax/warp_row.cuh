// Several rows a block, each shared by up to a warp's lanes: no barrier, for rows too short to fill a block.
#pragma once

#include "exponentials.cuh"

namespace kiln {

template <typename T, int Threads, int Lanes, int N, int Items>
__global__ __launch_bounds__(Threads) void softmax_warp_row(const T* x, T* y, long long rows, long long columns,
                                                            long long x_row_stride, long long y_row_stride) {
  using share = row_share<T, Lanes, N, Items>;
  const int lane = threadIdx.x % Lanes;
  const long long row = static_cast<long long>(blockIdx.x) * (Threads / Lanes) + threadIdx.x / Lanes;
  const int cols = row < rows ? static_cast<int>(columns) : 0;  // lanes past the last row take part in shuffles only
  const T* source = x + row * x_row_stride;
  const int peel = peel_of<N>(source, cols);
  const share values = share::load_row(source, cols, lane, peel, from_float<T>(-infinity()));

  const exponentials<T, Lanes, N, Items, Lanes> part(values);
  part.scaled(part.state).store_row(y + row * y_row_stride, cols, lane, peel);
}

}  // namespace kiln
