#pragma once

#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln {

/// A block of 256 threads a row, in double; y is float with the strides of the op's y. A fully masked row (every
/// element -inf) gives 0; a NaN or +inf makes the whole row NaN.
template <typename T>
__global__ __launch_bounds__(256) void softmax_reference(const T* x, float* y, long long cols, long long x_row_stride,
                                                         long long y_row_stride) {
  __shared__ double scratch[2][8];
  const T* source = x + blockIdx.x * x_row_stride;
  float* target = y + blockIdx.x * y_row_stride;
  const auto larger = [](double a, double b) { return a > b ? a : b; };

  const double lowest = -static_cast<double>(infinity());
  double largest = lowest;
  for (long long i = threadIdx.x; i < cols; i += 256) largest = larger(to_double(source[i]), largest);
  largest = block_reduce<8>(warp_reduce(largest, larger), lowest, larger, scratch[0]);
  const double origin = largest == lowest ? 0.0 : largest;

  double sum = 0;
  for (long long i = threadIdx.x; i < cols; i += 256) sum += exp(to_double(source[i]) - origin);
  sum = block_reduce<8>(warp_reduce(sum, add{}), 0.0, add{}, scratch[1]);
  for (long long i = threadIdx.x; i < cols; i += 256) {
    target[i] = sum == 0 ? 0.0f : static_cast<float>(exp(to_double(source[i]) - origin) / sum);
  }
}

}  // namespace kiln
