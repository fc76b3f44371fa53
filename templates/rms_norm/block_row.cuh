// A block a row: the row is read once, kept in registers, and written once.
#pragma once

#include "common/reduce.cuh"
#include "common/row.cuh"

namespace kiln {

/// Resident 0: a block for each row. Otherwise the grid is as many blocks as the device holds at once, Resident to a
/// multiprocessor; each keeps its part of the weight and loads its next row before it reduces the present one.
template <typename T, int Threads, int N, int Items, int Resident>
__global__ __launch_bounds__(Threads) void rms_norm_block_row(const T* x, const T* weight, T* y, long long rows,
                                                              long long columns, long long x_row_stride,
                                                              long long y_row_stride, float epsilon) {
  using share = row_share<T, Threads, N, Items>;
  constexpr int warps = Threads / 32;
  __shared__ float scratch[2][warps];
  const int cols = static_cast<int>(columns);
  const int thread = threadIdx.x;
  const T zero = from_float<T>(0);

  share weights;
  int weight_peel = -1;

  for_each_row<share, (Resident > 0), N>(x, x_row_stride, rows, cols, zero, [&](long long row, const share& values, int peel, int turn) {
    if (Resident == 0 || peel != weight_peel) {  // rows of an odd stride begin at changing phases
      weights = share::template load_row<false>(weight, cols, thread, peel, zero);
      weight_peel = peel;
    }
    const float squares = values.fold(0.0f, [](float sum, T value) { return fmaf(to_float(value), to_float(value), sum); });
    const float total = block_reduce<warps>(warp_reduce(squares, add{}), 0.0f, add{}, scratch[turn]);
    const float scale = rsqrtf(total / static_cast<float>(cols) + epsilon);
    const share normed = values.map(weights, [scale](T value, T factor) {
      return from_float<T>(to_float(value) * scale * to_float(factor));
    });
    normed.store_row(y + row * y_row_stride, cols, thread, peel);
  });
}

}  // namespace kiln
