// dx = scale * y * (dy - sum(dy * y)), row by row; a row is shared by some lanes of a warp, or by a block.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/reduce.cuh"
#include "common/row.cuh"

namespace kiln {

/// Both rows in registers, read once. Lanes: up to 32, or all Threads.
template <typename T, int Threads, int Lanes, int N, int Items>
__global__ __launch_bounds__(Threads) void softmax_backward_row(const T* y, const T* dy, T* dx, axis_length rows,
                                                                axis_length columns, long long y_row_stride,
                                                                long long dy_row_stride, long long dx_row_stride,
                                                                float scale) {
  static_assert(Lanes <= 32 || Lanes == Threads);
  using share = row_share<T, Lanes, N, Items>;
  constexpr int warps = Lanes > 32 ? Lanes / 32 : 1;
  __shared__ float scratch[warps];
  wait_for_predecessor();
  const int lane = threadIdx.x % Lanes;
  const int row = static_cast<int>(blockIdx.x * (Threads / Lanes) + threadIdx.x / Lanes);
  const int cols = row < rows.read() ? columns.read() : 0;  // past the last row threads take part in reductions only
  const T zero = from_float<T>(0);
  const T* source = y + row * y_row_stride;
  const int peel = peel_of<N>(source, cols);
  const share values = share::load_row(source, cols, lane, peel, zero);
  const share gradients = share::load_beside(dy + row * dy_row_stride, cols, lane, peel, zero);
  launch_dependents();

  const auto product = [](T value, T gradient) { return to_float(value) * to_float(gradient); };
  float dot = values.template zip<float>(gradients, product).reduce(add{});
  dot = block_reduce<warps>(warp_reduce<(Lanes < 32 ? Lanes : 32)>(dot, add{}), 0.0f, add{}, scratch);
  const auto gradient_of = [dot, scale](T value, T gradient) {
    return from_float<T>(scale * to_float(value) * (to_float(gradient) - dot));
  };
  values.map(gradients, gradient_of).store_row(dx + row * dx_row_stride, cols, lane, peel);
}

/// A block a row of any length, read twice.
template <typename T, int Threads, int N>
__global__ __launch_bounds__(Threads) void softmax_backward_streaming(const T* y, const T* dy, T* dx, axis_length rows,
                                                                      axis_length columns, long long y_row_stride,
                                                                      long long dy_row_stride, long long dx_row_stride,
                                                                      float scale) {
  constexpr int items = 2;
  constexpr int stride = Threads * N * items;
  using share = row_share<T, Threads, N, items>;
  __shared__ float scratch[Threads / 32];
  wait_for_predecessor();
  const int row = blockIdx.x, thread = threadIdx.x;
  if (row >= rows.read()) return;
  launch_dependents();
  const int cols = columns.read();
  const T zero = from_float<T>(0);
  const T* value_row = y + row * y_row_stride;
  const T* gradient_row = dy + row * dy_row_stride;
  T* target = dx + row * dx_row_stride;
  // Only the first piece has a front; it ends where the second begins, at the phase of its chunks.
  const int peel = peel_of<N>(value_row, cols);
  const auto peel_at = [&](int first) { return first == 0 ? peel : 0; };
  const auto after = [&](int first) { return first + peel_at(first) + stride; };

  float dot = 0;
  for (int first = 0; first < cols; first = after(first)) {
    const share values = share::load_row(value_row + first, cols - first, thread, peel_at(first), zero);
    const share gradients = share::load_beside(gradient_row + first, cols - first, thread, peel_at(first), zero);
    const auto product = [](T value, T gradient) { return to_float(value) * to_float(gradient); };
    dot += values.template zip<float>(gradients, product).reduce(add{});
  }
  dot = block_reduce<Threads / 32>(warp_reduce(dot, add{}), 0.0f, add{}, scratch);

  for (int first = 0; first < cols; first = after(first)) {
    const share values = share::load_row(value_row + first, cols - first, thread, peel_at(first), zero);
    const share gradients = share::load_beside(gradient_row + first, cols - first, thread, peel_at(first), zero);
    const auto gradient_of = [dot, scale](T value, T gradient) {
      return from_float<T>(scale * to_float(value) * (to_float(gradient) - dot));
    };
    values.map(gradients, gradient_of).store_row(target + first, cols - first, thread, peel_at(first));
  }
}

}  // namespace kiln
