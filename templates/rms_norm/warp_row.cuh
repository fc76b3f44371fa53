// Several rows a block, each shared by up to a warp's lanes: no barrier, for rows too short to fill a block.
#pragma once

#include "common/reduce.cuh"
#include "common/row.cuh"

namespace kiln {

/// Each group of Lanes lanes takes Batch rows and loads all of them before it reduces the first.
template <typename T, int Threads, int Lanes, int N, int Items, int Batch>
__global__ __launch_bounds__(Threads) void rms_norm_warp_row(const T* x, const T* weight, T* y, long long rows,
                                                             long long columns, long long x_row_stride,
                                                             long long y_row_stride, float epsilon) {
  using share = row_share<T, Lanes, N, Items>;
  const int lane = threadIdx.x % Lanes;
  const T zero = from_float<T>(0);
  const long long first_row = (static_cast<long long>(blockIdx.x) * (Threads / Lanes) + threadIdx.x / Lanes) * Batch;
  const auto cols_of = [&](long long row) { return row < rows ? static_cast<int>(columns) : 0; };  // past the end: an empty row

  share values[Batch];
  int peel[Batch];
#pragma unroll
  for (int i = 0; i < Batch; ++i) {
    const T* source = x + (first_row + i) * x_row_stride;
    peel[i] = peel_of<N>(source, cols_of(first_row + i));
    values[i] = share::template load_row<true>(source, cols_of(first_row + i), lane, peel[i], zero);
  }
  share weights = share::template load_row<false>(weight, cols_of(first_row), lane, peel[0], zero);
  int weight_peel = peel[0];

#pragma unroll
  for (int i = 0; i < Batch; ++i) {
    const int cols = cols_of(first_row + i);
    const float squares = values[i].fold(0.0f, [](float sum, T value) { return fmaf(to_float(value), to_float(value), sum); });
    const float total = warp_reduce<Lanes>(squares, add{});
    const float scale = rsqrtf(total / static_cast<float>(columns) + epsilon);
    if (peel[i] != weight_peel) {  // rows of an odd stride begin at changing phases
      weights = share::template load_row<false>(weight, cols, lane, peel[i], zero);
      weight_peel = peel[i];
    }
    const share normed = values[i].map(weights, [scale](T value, T factor) {
      return from_float<T>(to_float(value) * scale * to_float(factor));
    });
    normed.store_row(y + (first_row + i) * y_row_stride, cols, lane, peel[i]);
  }
}

}  // namespace kiln
