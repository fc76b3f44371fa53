// The kernels of rms_norm and layer_norm, but for their names and lists of arguments.
#pragma once

#include "common/length.cuh"
#include "common/norm_forward.cuh"

namespace kiln {

/// A block a row, which is read once and held in registers.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, int Items, typename T>
__device__ __forceinline__ void norm_block_row(const norm_tensors<T>& tensors, const axis_length& rows, long long cols,
                                               float epsilon) {
  __shared__ float scratch[row_sum_scratch<Threads>];
  wait_for_predecessor();
  if (blockIdx.x >= rows.read()) return;
  norm_resident_row<Kind, Residual, Quantise, Threads, N, Items>(tensors, blockIdx.x, true, true,
                                                                 static_cast<int>(cols), threadIdx.x, epsilon, scratch);
}

/// A block a row of any length, which is read again for each of its statistics and to be scaled.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int N, typename T>
__device__ __forceinline__ void norm_streaming(const norm_tensors<T>& tensors, const axis_length& rows, long long cols,
                                               float epsilon) {
  __shared__ float scratch[row_sum_scratch<Threads>];
  wait_for_predecessor();
  if (blockIdx.x >= rows.read()) return;
  norm_streamed_row<Kind, Residual, Quantise, Threads, N>(tensors.from_row(blockIdx.x), static_cast<int>(cols), epsilon,
                                                          scratch);
}

/// Threads / Lanes rows a block, each held by Lanes lanes of one warp: no barrier.
template <norm_kind Kind, residual_mode Residual, quantise_mode Quantise, int Threads, int Lanes, int N, int Items,
          typename T>
__device__ __forceinline__ void norm_warp_row(const norm_tensors<T>& tensors, const axis_length& rows_given,
                                              long long cols, float epsilon) {
  wait_for_predecessor();
  const int rows = rows_given.read();
  const int first = blockIdx.x * (Threads / Lanes), row = first + threadIdx.x / Lanes;
  if (first >= rows) return;
  const bool all_present = first + Threads / Lanes <= rows;
  norm_resident_row<Kind, Residual, Quantise, Lanes, N, Items>(
      tensors, row, row < rows, all_present, static_cast<int>(cols), threadIdx.x % Lanes, epsilon, nullptr);
}

}  // namespace kiln
