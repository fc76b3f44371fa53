#pragma once

#include "common/reduce.cuh"
#include "common/types.cuh"
#include "logits.cuh"

namespace kiln {

/// Element `column` of a row as the mask leaves it, scaled.
template <typename T, Mask mask>
__device__ double reference_logit(const T* x, const T* bias, const unsigned char* keep, long long row, long long column,
                                  long long cols, long long mask_row, long long queries, double scale) {
  if (mask == Mask::causal && column > row % queries + cols - queries) return -static_cast<double>(infinity());
  if (mask == Mask::boolean && keep[mask_row + column] == 0) return -static_cast<double>(infinity());
  const double logit = to_double(x[column]) * scale;
  return mask == Mask::additive ? logit + to_double(bias[mask_row + column]) : logit;
}

/// A block of 256 threads a row, in double; y is float with the strides of the op's y. A fully masked row (every
/// logit -inf) gives 0; a NaN or +inf that is not masked makes the whole row NaN.
template <typename T, Mask mask>
__global__ __launch_bounds__(256) void softmax_reference(const T* x, const T* bias, const unsigned char* keep, float* y,
                                                         long long cols, long long x_row_stride, long long y_row_stride,
                                                         long long mask_row_stride, long long mask_rows,
                                                         long long queries, float scale) {
  __shared__ double scratch[2][8];
  const long long row = blockIdx.x;
  float* target = y + row * y_row_stride;
  const auto larger = [](double a, double b) { return a > b ? a : b; };
  const auto logit = [&](long long column) {
    return reference_logit<T, mask>(x + row * x_row_stride, bias, keep, row, column, cols,
                                    row % mask_rows * mask_row_stride, queries, scale);
  };

  const double lowest = -static_cast<double>(infinity());
  double largest = lowest;
  for (long long i = threadIdx.x; i < cols; i += 256) largest = larger(logit(i), largest);
  largest = block_reduce<8>(warp_reduce(largest, larger), lowest, larger, scratch[0]);
  const double origin = largest == lowest ? 0.0 : largest;

  double sum = 0;
  for (long long i = threadIdx.x; i < cols; i += 256) sum += exp(logit(i) - origin);
  sum = block_reduce<8>(warp_reduce(sum, add{}), 0.0, add{}, scratch[1]);
  for (long long i = threadIdx.x; i < cols; i += 256)
    target[i] = sum == 0 ? 0.0f : static_cast<float>(exp(logit(i) - origin) / sum);
}

}  // namespace kiln
