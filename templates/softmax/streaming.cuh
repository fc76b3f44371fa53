// A block a row of any length: one pass to find the largest logit and the sum together, a second to write.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "logits.cuh"

namespace kiln {

template <typename T, int Threads, int N, Mask mask>
__global__ __launch_bounds__(Threads) void softmax_streaming(const T* x, const T* bias, const unsigned char* keep, T* y,
                                                             axis_length rows, axis_length columns,
                                                             long long x_row_stride, long long y_row_stride,
                                                             long long mask_row_stride, long long mask_rows,
                                                             long long queries, float scale) {
  constexpr int items = 2;
  constexpr int stride = Threads * N * items;
  __shared__ softmax_state scratch[Threads / 32];
  wait_for_predecessor();
  const int row = blockIdx.x, thread = threadIdx.x;
  if (row >= rows.read()) return;
  launch_dependents();
  const int cols = columns.read();
  const T* source = x + row * x_row_stride;
  T* target = y + row * y_row_stride;
  const row_logits<T, mask> logits(source, bias, keep, row, cols, mask_row_stride, mask_rows, queries, scale);
  const exponential exp = logits.exp;
  // Only the first piece has a front; it ends where the second begins, at the phase of its chunks.
  const int peel = peel_of<N>(source, cols);
  const auto peel_at = [&](int first) { return first == 0 ? peel : 0; };
  const auto after = [&](int first) { return first + peel_at(first) + stride; };

  softmax_state mine = softmax_state::empty();
  for (int first = 0; first < logits.seen; first = after(first))
    mine.absorb(logits.template load<Threads, N, items>(thread, peel_at(first), first), exp);
  const softmax_state whole =
      block_reduce<Threads / 32>(warp_reduce(mine, merge{exp}), softmax_state::empty(), merge{exp}, scratch);

  const float origin = whole.origin();
  const float factor = whole.scale_of(whole, exp);
  for (int first = 0; first < cols; first = after(first)) {
    const auto values = logits.template load<Threads, N, items>(thread, peel_at(first), first);
    const auto scaled =
        values.template map<T>([=](float logit) { return from_float<T>(exp(logit - origin) * factor); });
    scaled.store_row(target + first, cols - first, thread, peel_at(first));
  }
}

}  // namespace kiln
