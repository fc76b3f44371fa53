// The norms in double, a block of 256 threads a row: what the fused kernels are checked against.
#pragma once

#include "common/norm.cuh"

namespace kiln {

__device__ __forceinline__ double block_sum(double mine, double* scratch) {
  __syncthreads();
  return block_reduce<8>(warp_reduce(mine, add{}), 0.0, add{}, scratch);
}

__device__ __forceinline__ double saturated(double value) {
  return value > 448 ? 448 : value < -448 ? -448 : value;  // a NaN stays one
}

/// Element i of what is normalised: x, or its sum with the residual, rounded.
template <residual_mode Residual, typename T>
__device__ __forceinline__ double reference_input(const T* x, const T* residual, long long i) {
  if constexpr (Residual == residual_mode::none) return to_double(x[i]);
  return to_double(from_double<T>(to_double(x[i]) + to_double(residual[i])));
}

/// The quantised outputs of one row, whose results value(i) gives.
template <quantise_mode Quantise, typename Value>
__device__ __forceinline__ void reference_quantised(Value value, long long cols, const float* y_scale,
                                                    float* y_quantised, float* y_block_scales,
                                                    long long block_scale_stride) {
  if constexpr (Quantise == quantise_mode::tensor) {
    for (long long i = threadIdx.x; i < cols; i += 256) {
      y_quantised[i] = static_cast<float>(saturated(value(i) / static_cast<double>(*y_scale)));
    }
  } else {
    for (long long first = threadIdx.x * 128LL; first < cols; first += 256 * 128) {
      const long long end = first + 128 < cols ? first + 128 : cols;
      double largest = 1e-10;
      for (long long i = first; i < end; ++i) largest = fmax(largest, fabs(value(i)));
      const double scale = largest / 448;
      y_block_scales[first / 128 * block_scale_stride] = static_cast<float>(scale);
      for (long long i = first; i < end; ++i) y_quantised[i] = static_cast<float>(saturated(value(i) / scale));
    }
  }
}

/// bias is null for none, and for rms_norm.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, typename T>
__device__ __forceinline__ void reference_norm(const T* x, const T* residual, const T* weight, const T* bias,
                                               const float* y_scale, float* sum, float* y, float* y_quantised,
                                               float* y_block_scales, long long block_scale_stride, long long cols,
                                               float epsilon) {
  __shared__ double scratch[8];
  const auto input = [&](long long i) { return reference_input<Residual>(x, residual, i); };
  double mean = 0;
  if constexpr (Kind == norm_kind::layer) {
    for (long long i = threadIdx.x; i < cols; i += 256) mean += input(i);
    mean = block_sum(mean, scratch) / static_cast<double>(cols);
  }
  double squares = 0;
  for (long long i = threadIdx.x; i < cols; i += 256) squares += (input(i) - mean) * (input(i) - mean);
  const double variance = block_sum(squares, scratch) / static_cast<double>(cols);
  const double deviation = sqrt(variance + static_cast<double>(epsilon));
  const auto value = [&](long long i) {
    const double offset = bias == nullptr ? 0 : to_double(bias[i]);
    return (input(i) - mean) / deviation * to_double(weight[i]) + offset;
  };

  if constexpr (Residual == residual_mode::add) {
    for (long long i = threadIdx.x; i < cols; i += 256) sum[i] = static_cast<float>(input(i));
  }
  if constexpr (Quantise == quantise_mode::none) {
    for (long long i = threadIdx.x; i < cols; i += 256) y[i] = static_cast<float>(value(i));
  } else {
    reference_quantised<Quantise>(value, cols, y_scale, y_quantised, y_block_scales, block_scale_stride);
  }
}

}  // namespace kiln
