// Several rows a block, each shared by up to a warp's lanes: no barrier, for rows too short to fill a block.
#pragma once

#include "common/reduce.cuh"
#include "common/row.cuh"
#include "squares.cuh"

namespace kiln {

template <typename T, int Threads, int Lanes, int N, int Items>
__global__ __launch_bounds__(Threads) void rms_norm_warp_row(const T* x, const T* weight, T* y, long long rows,
                                                             long long columns, long long x_row_stride,
                                                             long long y_row_stride, float epsilon) {
  using share = row_share<T, Lanes, N, Items>;
  const int lane = threadIdx.x % Lanes;
  const T zero = from_float<T>(0);
  const long long row = static_cast<long long>(blockIdx.x) * (Threads / Lanes) + threadIdx.x / Lanes;
  const int cols = row < rows ? static_cast<int>(columns) : 0;  // lanes past the last row take part in shuffles only
  const T* source = x + row * x_row_stride;
  const int peel = peel_of<N>(source, cols);
  const share values = share::load_row(source, cols, lane, peel, zero);
  const share weights = share::load_beside(weight, cols, lane, peel, zero);

  const float squares = sum_of_squares(values);
  const float scale = rsqrtf(warp_reduce<Lanes>(squares, add{}) / static_cast<float>(columns) + epsilon);
  const share normed = values.map(
      weights, [scale](T value, T factor) { return from_float<T>(to_float(value) * scale * to_float(factor)); });
  normed.store_row(y + row * y_row_stride, cols, lane, peel);
}

}  // namespace kiln
