#pragma once

#include "common/types.cuh"

namespace kiln {

/// Blocks of rows. x is [ranks, rows, cols], dense; y is dense float.
template <typename T>
__global__ __launch_bounds__(256) void all_reduce_reference(const T* x, float* y, long long rows, long long cols,
                                                            long long world) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    for (long long column = threadIdx.x; column < cols; column += 256) {
      double sum = 0;
      for (long long from = 0; from < world; ++from) sum += to_double(x[(from * rows + row) * cols + column]);
      y[row * cols + column] = static_cast<float>(sum);
    }
  }
}

}  // namespace kiln
