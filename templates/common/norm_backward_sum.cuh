// The second step of a sum over rows: partial sums of all blocks, column by column, always in the same order.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/norm_backward.cuh"

namespace kiln {

/// A block takes 32 columns, its warps the parts in turn; blockIdx.y chooses between dweight and dbias. partial: [2 or 1][parts][columns,
/// padded]. Only parts of blocks that had a row have been written, at RowsAtOnce rows a block. No rows: the sum is 0.
template <typename T, int Threads, int RowsAtOnce>
__global__ __launch_bounds__(Threads) void norm_backward_sum(const float* partial, T* dweight, T* dbias,
                                                             axis_length rows_given, long long columns, int parts) {
  constexpr int warps = Threads / 32;
  __shared__ float sums[warps][33];
  wait_for_predecessor();
  const int written = min(parts, (rows_given.read() + RowsAtOnce - 1) / RowsAtOnce);
  const int cols = static_cast<int>(columns);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int column = blockIdx.x * 32 + lane;
  const long long stride = partial_stride(cols);
  const float* source = partial + blockIdx.y * parts * stride + column;
  float sum = 0;
  if (column < cols) {
#pragma unroll 8
    for (int part = warp; part < written; part += warps) sum += source[part * stride];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= cols) return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < warps; ++i) total += sums[i][lane];
  (blockIdx.y == 0 ? dweight : dbias)[column] = from_float<T>(total);
}

}  // namespace kiln
