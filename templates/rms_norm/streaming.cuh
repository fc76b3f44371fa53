// A block a row of any length: one pass to add up the squares, a second to scale.
#pragma once

#include "common/reduce.cuh"
#include "common/row.cuh"
#include "squares.cuh"

namespace kiln {

template <typename T, int Threads, int N>
__global__ __launch_bounds__(Threads) void rms_norm_streaming(const T* x, const T* weight, T* y, long long columns,
                                                              long long x_row_stride, long long y_row_stride,
                                                              float epsilon) {
  constexpr int items = 2;
  constexpr int stride = Threads * N * items;
  using share = row_share<T, Threads, N, items>;
  __shared__ float scratch[Threads / 32];
  const int cols = static_cast<int>(columns);
  const int thread = threadIdx.x;
  const T zero = from_float<T>(0);
  const T* source = x + blockIdx.x * x_row_stride;
  T* target = y + blockIdx.x * y_row_stride;
  const int peel = peel_of<N>(source, cols);
  // Only the first piece has a front; it ends where the second begins, at the phase of its chunks.
  const auto peel_at = [&](int first) { return first == 0 ? peel : 0; };
  const auto after = [&](int first) { return first + peel_at(first) + stride; };

  float squares = 0;
  for (int first = 0; first < cols; first = after(first)) {
    const share values = share::load_row(source + first, cols - first, thread, peel_at(first), zero);
    squares += sum_of_squares(values);
  }
  const float total = block_reduce<Threads / 32>(warp_reduce(squares, add{}), 0.0f, add{}, scratch);
  const float scale = rsqrtf(total / static_cast<float>(cols) + epsilon);

  for (int first = 0; first < cols; first = after(first)) {
    const share values = share::load_row(source + first, cols - first, thread, peel_at(first), zero);
    const share weights = share::load_beside(weight + first, cols - first, thread, peel_at(first), zero);
    const share normed = values.map(
        weights, [scale](T value, T factor) { return from_float<T>(to_float(value) * scale * to_float(factor)); });
    normed.store_row(target + first, cols - first, thread, peel_at(first));
  }
}

}  // namespace kiln
