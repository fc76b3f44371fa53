#pragma once

#include "common/types.cuh"

namespace kiln {

/// Blocks (rank, part of its rows). x is [ranks, rows, cols], dense; y is float with the strides of the op's y.
template <typename T>
__global__ __launch_bounds__(256) void all_gather_reference(const T* x, float* y, int* counts, long long rows,
                                                            long long cols, long long rank_stride) {
  const long long rank = blockIdx.x;
  if (counts != nullptr && blockIdx.y == 0 && threadIdx.x == 0) counts[rank] = static_cast<int>(rows);
  for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
    for (long long column = threadIdx.x; column < cols; column += 256)
      y[(rank * rank_stride + row) * cols + column] = to_float(x[(rank * rows + row) * cols + column]);
  }
}

}  // namespace kiln
