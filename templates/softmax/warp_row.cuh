// Several rows a block, each shared by up to a warp's lanes: no barrier, for rows too short to fill a block.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "exponentials.cuh"
#include "logits.cuh"

namespace kiln {

template <typename T, int Threads, int Lanes, int N, int Items, Mask mask>
__global__ __launch_bounds__(Threads) void softmax_warp_row(const T* x, const T* bias, const unsigned char* keep, T* y,
                                                            axis_length rows, axis_length columns,
                                                            long long x_row_stride, long long y_row_stride,
                                                            long long mask_row_stride, long long mask_rows,
                                                            long long queries, float scale) {
  wait_for_predecessor();
  const int lane = threadIdx.x % Lanes;
  const int row = static_cast<int>(blockIdx.x * (Threads / Lanes) + threadIdx.x / Lanes);
  const int cols = row < rows.read() ? columns.read() : 0;  // lanes past the last row take part in shuffles only
  const T* source = x + row * x_row_stride;
  const int peel = peel_of<N>(source, cols);
  const row_logits<T, mask> logits(source, bias, keep, row, cols, mask_row_stride, mask_rows, queries, scale);
  const auto values = logits.template load<Lanes, N, Items>(lane, peel);
  launch_dependents();

  const exponentials<Lanes, N, Items, Lanes> part(values, logits.exp);
  part.template scaled<T>(part.state).store_row(y + row * y_row_stride, cols, lane, peel);
}

}  // namespace kiln
