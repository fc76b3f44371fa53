// A block a row, for rows too long for registers: the row is read once, kept in shared memory, and written once.
#pragma once

#include "common/async_copy.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/norm.cuh"

namespace kiln {

/// Dynamic shared memory: 16 bytes for each of the row's chunks. A thread reads only what it copied itself, so that the
/// copies need no barrier.
template <typename T, int Threads>
__global__ __launch_bounds__(Threads) void rms_norm_shared_row(const T* x, const T* weight, T* y,
                                                               axis_length rows_given, long long columns,
                                                               long long x_row_stride, long long y_row_stride,
                                                               float epsilon) {
  constexpr int n = 16 / sizeof(T);
  extern __shared__ uint4 chunks[];
  __shared__ float scratch[row_sum_scratch<Threads>];
  wait_for_predecessor();
  if (blockIdx.x >= rows_given.read()) return;
  const int cols = static_cast<int>(columns);
  const int thread = threadIdx.x;
  const T zero = from_float<T>(0);
  const T* source = x + blockIdx.x * x_row_stride;
  T* target = y + blockIdx.x * y_row_stride;
  const int peel = peel_of<n>(source, cols);
  const int begin = peel + thread * n;
  uint4* mine = chunks + thread;

  for (int first = begin, i = 0; first < cols; first += Threads * n, i += Threads) {
    if (first + n <= cols) {
      cp_async_16(shared_address(&mine[i]), source + first, true);
    } else {
      mine[i] = load_partial<n>(source, first, cols, zero);
    }
  }
  cp_async_commit();
  const T front = thread < peel ? source[thread] : zero;
  float squares = to_float(front) * to_float(front);
  cp_async_wait<0>();
  for (int first = begin, i = 0; first < cols; first += Threads * n, i += Threads) {
    squares += unpack<T, n>(mine[i]).template map<float>(element_squared{}).reduce(add{});
  }
  launch_dependents();
  row_sum<Threads> sum{scratch};
  const float scale = rsqrtf(sum(squares) / static_cast<float>(cols) + epsilon);

  const auto normed = [scale](T value, T factor) { return from_float<T>(to_float(value) * scale * to_float(factor)); };
  if (thread < peel) target[thread] = normed(front, weight[thread]);
  const bool weight_aligned = is_aligned<16>(weight + peel);
  const bool target_aligned = is_aligned<16>(target + peel);
  for (int first = begin, i = 0; first < cols; first += Threads * n, i += Threads) {
    const bool whole = first + n <= cols;
    vec<T, n> values = unpack<T, n>(mine[i]);
    const vec<T, n> factors = unpack<T, n>(whole && weight_aligned ? load_packed<n>(weight + first)
                                                                   : load_partial<n>(weight, first, cols, zero));
#pragma unroll
    for (int j = 0; j < n; ++j) values.at[j] = normed(values.at[j], factors.at[j]);
    if (whole && target_aligned) {
      store(target + first, values);
    } else {
      store_partial<n>(target, first, cols, pack(values));
    }
  }
}

}  // namespace kiln
