#pragma once

#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln {

/// A block of 256 threads a row, in double; y is float with the strides of the op's y.
template <typename T>
__global__ __launch_bounds__(256) void rms_norm_reference(const T* x, const T* weight, float* y, long long cols,
                                                          long long x_row_stride, long long y_row_stride,
                                                          float epsilon) {
  __shared__ double scratch[8];
  const T* source = x + blockIdx.x * x_row_stride;
  float* target = y + blockIdx.x * y_row_stride;
  double squares = 0;
  for (long long i = threadIdx.x; i < cols; i += 256) squares += to_double(source[i]) * to_double(source[i]);
  const double total = block_reduce<8>(warp_reduce(squares, add{}), 0.0, add{}, scratch);
  const double rms = sqrt(total / static_cast<double>(cols) + static_cast<double>(epsilon));
  for (long long i = threadIdx.x; i < cols; i += 256) {
    target[i] = static_cast<float>(to_double(source[i]) / rms * to_double(weight[i]));
  }
}

}  // namespace kiln
