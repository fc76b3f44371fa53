#pragma once

#include "common/types.cuh"

namespace kiln {

/// Blocks of rows. x is [ranks, ranks, rows, cols]: sending ranks are `rank_elements` apart, their parts `part_stride` rows. y is dense float.
template <typename T>
__global__ __launch_bounds__(256) void reduce_scatter_reference(const T* x, float* y, long long rows, long long cols,
                                                                long long part_stride, long long rank_elements,
                                                                long long world, int rank) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    for (long long column = threadIdx.x; column < cols; column += 256) {
      double sum = 0;
      for (long long from = 0; from < world; ++from)
        sum += to_double(x[from * rank_elements + (rank * part_stride + row) * cols + column]);
      y[row * cols + column] = static_cast<float>(sum);
    }
  }
}

}  // namespace kiln
