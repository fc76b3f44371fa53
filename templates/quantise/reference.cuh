#pragma once

#include "common/quantise.cuh"

namespace kiln {

__device__ inline double saturated_e4m3(double value) {
  const double largest = e4m3_largest;
  return value > largest ? largest : value < -largest ? -largest : value;
}

/// The largest magnitude of columns first .. end of a row; that of zeros is quantise_least.
template <typename T>
__device__ double reference_largest(const T* row, long long first, long long end) {
  double largest = quantise_least;
  for (long long i = first; i < end; ++i) largest = fmax(largest, fabs(to_double(row[i])));
  return largest;
}

/// One block of 1024 threads.
template <typename T>
__global__ __launch_bounds__(1024) void quantise_scale_reference(const T* x, float* scale, long long rows,
                                                                 long long cols, long long x_row_stride) {
  __shared__ double scratch[32];
  const auto larger = [](double a, double b) { return fmax(a, b); };
  double largest = quantise_least;
  for (long long i = threadIdx.x; i < rows * cols; i += 1024)
    largest = fmax(largest, fabs(to_double(x[i / cols * x_row_stride + i % cols])));
  largest = block_reduce<32>(warp_reduce(largest, larger), 0.0, larger, scratch);
  if (threadIdx.x == 0) *scale = static_cast<float>(largest / e4m3_largest);
}

/// A block of 256 threads a row, in double; y is what is to be rounded, in float. With `in_blocks` scales are worked out here,
/// else the one given is used.
template <typename T, bool in_blocks>
__global__ __launch_bounds__(256) void quantise_reference(const T* x, float* y, const float* scale, float* block_scales,
                                                          long long cols, long long x_row_stride,
                                                          long long y_row_stride, long long block_scale_row_stride,
                                                          long long block_scale_stride) {
  const long long row = blockIdx.x;
  const T* source = x + row * x_row_stride;
  for (long long first = threadIdx.x * static_cast<long long>(quantise_block); first < cols;
       first += 256 * quantise_block) {
    const long long end = min(cols, first + quantise_block);
    const double divisor = in_blocks ? reference_largest(source, first, end) / e4m3_largest : to_double(*scale);
    for (long long i = first; i < end; ++i)
      y[row * y_row_stride + i] = static_cast<float>(saturated_e4m3(to_double(source[i]) / divisor));
    if (in_blocks)
      block_scales[row * block_scale_row_stride + first / quantise_block * block_scale_stride] =
          static_cast<float>(divisor);
  }
}

}  // namespace kiln
