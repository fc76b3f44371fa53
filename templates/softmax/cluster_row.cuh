// A cluster of blocks a row, for rows too long for the registers of one block: each keeps its part of the row in shared
// memory, which holds more rows at a time, and they agree on the largest element and the sum through distributed shared
// memory. A cluster of one needs no more than sm_80; others sm_90.
#pragma once

#include "common/async_copy.cuh"
#include "common/cluster.cuh"
#include "common/row.cuh"
#include "softmax_state.cuh"

namespace kiln {

/// How the blocks of a cluster agree: each sends its state to all, itself included.
template <int Blocks>
struct cluster_exchange {
  float2 states[Blocks];
  unsigned long long barrier;

  /// First of all, by every thread: the others may write here once this block runs.
  __device__ __forceinline__ void open() {
    if (threadIdx.x == 0) mbarrier_expect(&barrier, sizeof(states));
    cluster_arrive_relaxed();
  }
  __device__ __forceinline__ softmax_state merged(const softmax_state& of_block) {
    cluster_wait();
    if (threadIdx.x < Blocks) {
      const unsigned to = mapa(&states[cluster_block_rank()], threadIdx.x);
      st_async(to, make_float2(of_block.largest, of_block.sum), mapa(&barrier, threadIdx.x));
    }
    mbarrier_wait(&barrier);
    softmax_state whole = softmax_state::empty();
#pragma unroll
    for (int i = 0; i < Blocks; ++i) whole = merge{}(whole, {states[i].x, states[i].y});
    return whole;
  }
};

/// Dynamic shared memory: 16 bytes for each of a block's chunks, which are one in Blocks of the row's. A thread reads
/// only what it copied itself, so that the copies need no barrier.
template <typename T, int Blocks, int Threads>
__global__ __launch_bounds__(Threads) void softmax_cluster_row(const T* x, T* y, long long columns,
                                                               long long x_row_stride, long long y_row_stride) {
  constexpr int n = 16 / sizeof(T);
  constexpr int warps = Threads / 32;
  constexpr int stride = Blocks * Threads * n;
  extern __shared__ uint4 chunks[];
  __shared__ softmax_state of_warps[warps];
  __shared__ cluster_exchange<Blocks> exchange;
  if constexpr (Blocks > 1) exchange.open();

  const int cols = static_cast<int>(columns);
  const long long row = blockIdx.x / Blocks;
  const int thread = blockIdx.x % Blocks * Threads + threadIdx.x;
  const T* source = x + row * x_row_stride;
  T* target = y + row * y_row_stride;
  const int peel = peel_of<n>(source, cols);
  const int begin = peel + thread * n;
  uint4* mine = chunks + threadIdx.x;

  const T masked = from_float<T>(-infinity());
  for (int first = begin, i = 0; first < cols; first += stride, i += Threads) {
    if (first + n <= cols) {
      cp_async_16(shared_address(&mine[i]), source + first, true);
    } else {
      mine[i] = load_partial<n>(source, first, cols, masked);
    }
  }
  cp_async_commit();
  const float front = to_float(thread < peel ? source[thread] : masked);
  softmax_state state = softmax_state::of(front);
  cp_async_wait<0>();
  for (int first = begin, i = 0; first < cols; first += stride, i += Threads) state.absorb(unpack<T, n>(mine[i]));

  state = block_reduce<warps>(warp_reduce(state, merge{}), softmax_state::empty(), merge{}, of_warps);
  if constexpr (Blocks > 1) state = exchange.merged(state);

  const float origin = state.origin();
  const float scale = state.scale_of(state);
  if (thread < peel) target[thread] = from_float<T>(fast_exp(front - origin) * scale);
  const bool aligned = is_aligned<16>(target + peel);
  for (int first = begin, i = 0; first < cols; first += stride, i += Threads) {
    vec<T, n> values = unpack<T, n>(mine[i]);
#pragma unroll
    for (int j = 0; j < n; ++j) values.at[j] = from_float<T>(fast_exp(to_float(values.at[j]) - origin) * scale);
    if (aligned && first + n <= cols) {
      store(target + first, values);
    } else {
      store_partial<n>(target, first, cols, pack(values));
    }
  }
}

}  // namespace kiln
