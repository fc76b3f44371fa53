// A block a row: the row is read once, its exponentials are kept in registers, and it is written once.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "exponentials.cuh"
#include "logits.cuh"

namespace kiln {

template <typename T, int Threads, int N, int Items, Mask mask>
__global__ __launch_bounds__(Threads) void softmax_block_row(const T* x, const T* bias, const unsigned char* keep, T* y,
                                                             axis_length rows, axis_length columns,
                                                             long long x_row_stride, long long y_row_stride,
                                                             long long mask_row_stride, long long mask_rows,
                                                             long long queries, float scale) {
  constexpr int warps = Threads / 32;
  __shared__ softmax_state scratch[warps];
  wait_for_predecessor();
  const int row = blockIdx.x;
  if (row >= rows.read()) return;
  const int cols = columns.read();
  const T* source = x + row * x_row_stride;
  const int peel = peel_of<N>(source, cols);
  const row_logits<T, mask> logits(source, bias, keep, row, cols, mask_row_stride, mask_rows, queries, scale);
  const auto values = logits.template load<Threads, N, Items>(threadIdx.x, peel);
  launch_dependents();

  const exponentials<Threads, N, Items> part(values, logits.exp);
  const softmax_state whole = block_reduce<warps>(part.state, softmax_state::empty(), merge{logits.exp}, scratch);
  part.template scaled<T>(whole).store_row(y + row * y_row_stride, cols, threadIdx.x, peel);
}

}  // namespace kiln
