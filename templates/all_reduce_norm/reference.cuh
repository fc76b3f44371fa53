#pragma once

#include "common/norm_reference.cuh"

namespace kiln {

/// A block of 256 threads a row. x is [ranks, rows, cols], dense; outputs are float.
template <typename T, residual_mode Residual, quantise_mode Quantise>
__global__ __launch_bounds__(256) void all_reduce_norm_reference(const T* x, const T* residual, const T* weight,
                                                                 const float* y_scale, float* sum, float* y,
                                                                 float* y_quantised, float* y_block_scales,
                                                                 long long rows, long long cols, long long world,
                                                                 long long block_scale_row_stride,
                                                                 long long block_scale_stride, float epsilon) {
  __shared__ double scratch[8];
  const long long first = blockIdx.x * cols;
  const auto input = [&](long long i) {
    double sum_of_ranks = 0;
    for (long long from = 0; from < world; ++from) sum_of_ranks += to_double(x[from * rows * cols + first + i]);
    const double rounded = to_double(from_double<T>(sum_of_ranks));
    if constexpr (Residual == residual_mode::none) return rounded;
    return to_double(from_double<T>(rounded + to_double(residual[first + i])));
  };
  double squares = 0;
  for (long long i = threadIdx.x; i < cols; i += 256) squares += input(i) * input(i);
  const double mean = block_sum(squares, scratch) / static_cast<double>(cols);
  const double deviation = sqrt(mean + static_cast<double>(epsilon));
  const auto value = [&](long long i) { return input(i) / deviation * to_double(weight[i]); };

  if constexpr (Residual == residual_mode::add) {
    for (long long i = threadIdx.x; i < cols; i += 256) sum[first + i] = static_cast<float>(input(i));
  }
  if constexpr (Quantise == quantise_mode::none) {
    for (long long i = threadIdx.x; i < cols; i += 256) y[first + i] = static_cast<float>(value(i));
  } else {
    reference_quantised<Quantise>(value, cols, y_scale, y_quantised + first,
                                  y_block_scales + blockIdx.x * block_scale_row_stride, block_scale_stride);
  }
}

}  // namespace kiln
