#pragma once

#include "common/types.cuh"
#include "direction.cuh"

namespace kiln {

/// Blocks (sending rank, rows). `width`: elements of a row's heads of one rank. Sending ranks' x are `rank_elements` apart; y is float with
/// the strides of the op's y.
template <typename T, Direction direction>
__global__ __launch_bounds__(256) void all_to_all_reference(const T* x, float* y, int* row_counts, long long rows,
                                                            long long width, long long rank_stride,
                                                            long long rank_elements, long long world, int rank) {
  const long long from = blockIdx.x, all = world * width;
  x += from * rank_elements;
  if (row_counts != nullptr && blockIdx.y == 0 && threadIdx.x == 0) row_counts[from] = static_cast<int>(rows);
  for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
    for (long long i = threadIdx.x; i < width; i += 256) {
      if constexpr (direction == Direction::scatter_heads) {
        y[(from * rank_stride + row) * width + i] = to_float(x[row * all + rank * width + i]);
      } else {
        y[row * all + from * width + i] = to_float(x[(rank * rank_stride + row) * width + i]);
      }
    }
  }
}

}  // namespace kiln
