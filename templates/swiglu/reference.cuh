#pragma once

#include "common/quantise.cuh"

namespace kiln {

template <typename T>
__device__ double reference_swiglu(const T* gate, const T* up, long long column) {
  const double value = to_double(gate[column]);
  return value / (1 + exp(-value)) * to_double(up[column]);
}

__device__ inline double saturated_e4m3(double value) {
  const double largest = e4m3_largest;
  return value > largest ? largest : value < -largest ? -largest : value;
}

/// A block of 256 threads a row, in double. Quantised outputs are what is to be rounded, in float.
template <typename T, quantise_mode mode>
__global__ __launch_bounds__(256) void swiglu_reference(const T* gate, const T* up, float* y, float* y_quantised,
                                                        const float* y_scale, float* y_block_scales, long long cols,
                                                        long long gate_row_stride, long long up_row_stride,
                                                        long long y_row_stride, long long block_scale_row_stride,
                                                        long long block_scale_stride) {
  const long long row = blockIdx.x;
  gate += row * gate_row_stride;
  up += row * up_row_stride;
  if constexpr (mode == quantise_mode::block) {
    const long long blocks = (cols + quantise_block - 1) / quantise_block;
    for (long long block = threadIdx.x; block < blocks; block += 256) {
      const long long first = block * quantise_block, end = min(cols, first + quantise_block);
      double largest = quantise_least;
      for (long long i = first; i < end; ++i) largest = fmax(largest, fabs(reference_swiglu(gate, up, i)));
      const double scale = largest / e4m3_largest;
      for (long long i = first; i < end; ++i)
        y_quantised[row * y_row_stride + i] = static_cast<float>(saturated_e4m3(reference_swiglu(gate, up, i) / scale));
      y_block_scales[row * block_scale_row_stride + block * block_scale_stride] = static_cast<float>(scale);
    }
  } else {
    for (long long i = threadIdx.x; i < cols; i += 256) {
      const double value = reference_swiglu(gate, up, i);
      if (mode == quantise_mode::none) y[row * y_row_stride + i] = static_cast<float>(value);
      if (mode == quantise_mode::tensor)
        y_quantised[row * y_row_stride + i] = static_cast<float>(saturated_e4m3(value / to_double(*y_scale)));
    }
  }
}

}  // namespace kiln
