// A block a row of any length: one pass to find the largest element and the sum together, a second to write.
#pragma once

#include "common/row.cuh"
#include "softmax_state.cuh"

namespace kiln {

template <typename T, int Threads, int N>
__global__ __launch_bounds__(Threads) void softmax_streaming(const T* x, T* y, long long columns,
                                                             long long x_row_stride, long long y_row_stride) {
  constexpr int items = 2;
  constexpr int stride = Threads * N * items;
  using share = row_share<T, Threads, N, items>;
  __shared__ softmax_state scratch[Threads / 32];
  const int cols = static_cast<int>(columns);
  const int thread = threadIdx.x;
  const T masked = from_float<T>(-infinity());
  const T* source = x + blockIdx.x * x_row_stride;
  T* target = y + blockIdx.x * y_row_stride;
  // Only the first piece has a front; it ends where the second begins, at the phase of its chunks.
  const int peel = peel_of<N>(source, cols);
  const auto peel_at = [&](int first) { return first == 0 ? peel : 0; };
  const auto after = [&](int first) { return first + peel_at(first) + stride; };

  softmax_state mine = softmax_state::empty();
  for (int first = 0; first < cols; first = after(first)) {
    const share values = share::load_row(source + first, cols - first, thread, peel_at(first), masked);
    mine.absorb(values);
  }
  const softmax_state whole =
      block_reduce<Threads / 32>(warp_reduce(mine, merge{}), softmax_state::empty(), merge{}, scratch);

  const float origin = whole.origin();
  const float scale = whole.scale_of(whole);
  for (int first = 0; first < cols; first = after(first)) {
    const share values = share::load_row(source + first, cols - first, thread, peel_at(first), masked);
    const share scaled =
        values.template map<T>([=](T value) { return from_float<T>(fast_exp(to_float(value) - origin) * scale); });
    scaled.store_row(target + first, cols - first, thread, peel_at(first));
  }
}

}  // namespace kiln
