// Chunks of gate, up and dy to chunks of dgate and dup, all of a thread's loads first.
#pragma once

#include "common/chunks.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/sigmoid.cuh"

namespace kiln {

template <typename T, int Threads, int Lanes, int N, int Items>
__global__ __launch_bounds__(Threads) void swiglu_backward_chunks(const T* gate, const T* up, const T* dy, T* dgate,
                                                                  T* dup, axis_length length, long long columns,
                                                                  long long gate_row_stride, long long up_row_stride,
                                                                  long long dy_row_stride, long long dgate_row_stride,
                                                                  long long dup_row_stride) {
  wait_for_predecessor();
  const auto work =
      chunk_tiles<N, Threads, Lanes, Items>::of(gate, gate_row_stride, length.read(), static_cast<int>(columns));
  if (blockIdx.x >= work.blocks()) return;
  work.visit(blockIdx.x, [&](const chunk_share<N, Lanes, Items>& share) {
    chunk_pieces<T, N> gates[Items], ups[Items], dys[Items];
    share.load(gates, gate, gate_row_stride);
    share.load(ups, up, up_row_stride);
    share.load(dys, dy, dy_row_stride);
    launch_dependents();
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const vec<T, N> g = gates[item].values(), u = ups[item].values(), d = dys[item].values();
      vec<T, N> of_gate, of_up;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float value = to_float(g.at[i]), gradient = to_float(d.at[i]);
        const float slope = sigmoid(value), silu = value * slope;
        of_up.at[i] = from_float<T>(gradient * silu);
        of_gate.at[i] = from_float<T>(gradient * to_float(u.at[i]) * (slope + silu * (1.0f - slope)));
      }
      share.store(item, dgate, dgate_row_stride, chunk_pieces<T, N>::of([&](int i) { return of_gate.at[i]; }));
      share.store(item, dup, dup_row_stride, chunk_pieces<T, N>::of([&](int i) { return of_up.at[i]; }));
    }
  });
}

}  // namespace kiln
