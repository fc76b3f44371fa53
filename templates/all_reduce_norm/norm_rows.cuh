// rms_norm's block a row, of a sum over ranks that another kernel has left.
#pragma once

#include "common/norm_forward_kernels.cuh"

namespace kiln {

/// All rows are dense, of `cols` elements. `Items` of 0: rows too long for registers, which are read twice.
template <typename T, int Threads, int Items, residual_mode Residual, quantise_mode Quantise>
__global__ __launch_bounds__(Threads) void all_reduce_norm_rows(const T* reduced, const T* residual, const T* weight,
                                                                const float* y_scale, T* sum, T* y, e4m3* y_quantised,
                                                                float* y_block_scales, axis_length rows, long long cols,
                                                                long long block_scale_row_stride,
                                                                long long block_scale_stride, float epsilon) {
  constexpr int n = 16 / sizeof(T);
  const norm_tensors<T> tensors{
      reduced,           residual,       weight, nullptr, y_scale, sum,  y,
      y_quantised,       y_block_scales, cols,   cols,    cols,    cols, block_scale_row_stride,
      block_scale_stride};
  if constexpr (Items > 0) {
    norm_block_row<norm_kind::rms, Residual, Quantise, Threads, n, Items, T>(tensors, rows, cols, epsilon);
  } else {
    norm_streaming<norm_kind::rms, Residual, Quantise, Threads, n, T>(tensors, rows, cols, epsilon);
  }
}

}  // namespace kiln
