#pragma once

#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln {

/// A block of 256 threads a row, in double.
template <typename T>
__global__ __launch_bounds__(256) void softmax_backward_reference(const T* y, const T* dy, float* dx, long long cols,
                                                                  long long y_row_stride, long long dy_row_stride,
                                                                  long long dx_row_stride, float scale) {
  __shared__ double scratch[8];
  const long long row = blockIdx.x;
  const T* values = y + row * y_row_stride;
  const T* gradients = dy + row * dy_row_stride;
  double dot = 0;
  for (long long i = threadIdx.x; i < cols; i += 256) dot += to_double(values[i]) * to_double(gradients[i]);
  dot = block_reduce<8>(warp_reduce(dot, add{}), 0.0, add{}, scratch);
  for (long long i = threadIdx.x; i < cols; i += 256)
    dx[row * dx_row_stride + i] =
        static_cast<float>(static_cast<double>(scale) * to_double(values[i]) * (to_double(gradients[i]) - dot));
}

}  // namespace kiln
