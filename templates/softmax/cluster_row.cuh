// A cluster of blocks a row, for rows too long for the registers of one block. Each block keeps its part of the row in
// shared memory, which holds more rows at a time. Blocks agree on the largest element and the sum through distributed
// shared memory. A cluster of one needs no more than sm_80; others sm_90.
#pragma once

#include "common/async_copy.cuh"
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "logits.cuh"

namespace kiln {

/// How the blocks of a cluster agree: each sends its state to all, itself included.
template <int Blocks>
struct cluster_exchange {
  float2 states[Blocks];
  unsigned long long barrier;

  /// Before anything that takes long, by every thread: the others may write here once this block runs.
  __device__ __forceinline__ void open() {
    if (threadIdx.x == 0) mbarrier_expect(&barrier, sizeof(states));
    cluster_arrive_relaxed();
  }
  __device__ __forceinline__ softmax_state merged(const softmax_state& of_block, exponential exp) {
    cluster_wait();
    if (threadIdx.x < Blocks) {
      const unsigned to = mapa(&states[cluster_block_rank()], threadIdx.x);
      st_async(to, make_float2(of_block.largest, of_block.sum), mapa(&barrier, threadIdx.x));
    }
    mbarrier_wait(&barrier);
    softmax_state whole = softmax_state::empty();
#pragma unroll
    for (int i = 0; i < Blocks; ++i) whole = merge{exp}(whole, {states[i].x, states[i].y});
    return whole;
  }
};

/// Waits for this thread's groups of copies in their turn, Pending + 1 of them, and calls `take` as each has arrived.
template <int Pending, typename Take>
__device__ __forceinline__ void take_in_turn(const Take& take) {
  cp_async_wait<Pending>();
  take();
  if constexpr (Pending > 0) take_in_turn<Pending - 1>(take);
}

/// Dynamic shared memory: 16 bytes for each of a block's chunks, which are one in Blocks of the row's. A thread has
/// Groups * Chunks of them. The largest logit and the sum are found group by group, as they arrive. A thread reads only
/// what it copied itself, so that the copies need no barrier. For masks that have no tensor.
template <typename T, int Blocks, int Threads, int Groups, int Chunks, Mask mask>
__global__ __launch_bounds__(Threads) void softmax_cluster_row(const T* x, T* y, axis_length rows, axis_length columns,
                                                               long long x_row_stride, long long y_row_stride,
                                                               long long queries, float scale) {
  static_assert(mask == Mask::none || mask == Mask::causal);
  constexpr int n = 16 / sizeof(T);
  constexpr int warps = Threads / 32;
  constexpr int stride = Blocks * Threads * n;
  extern __shared__ uint4 chunks[];
  __shared__ softmax_state of_warps[warps];
  __shared__ cluster_exchange<Blocks> exchange;
  wait_for_predecessor();
  const int row = blockIdx.x / Blocks;
  if (row >= rows.read()) return;
  if constexpr (Blocks > 1) exchange.open();

  const int cols = columns.read();
  const int thread = blockIdx.x % Blocks * Threads + threadIdx.x;
  const T* source = x + row * x_row_stride;
  T* target = y + row * y_row_stride;
  const row_logits<T, mask> logits(source, nullptr, nullptr, row, cols, 0, 1, queries, scale);
  const int seen = logits.seen;
  const exponential exp = logits.exp;
  const int peel = peel_of<n>(source, cols);
  const int begin = peel + thread * n;
  uint4* mine = chunks + threadIdx.x;

  const T masked = from_float<T>(-infinity());
  for (int group = 0; group < Groups; ++group) {
#pragma unroll 1
    for (int chunk = group * Chunks; chunk < (group + 1) * Chunks; ++chunk) {
      const int first = begin + chunk * stride;
      if (first + n <= seen) {
        cp_async_16(shared_address(&mine[chunk * Threads]), source + first, true);
      } else if (first < seen) {
        mine[chunk * Threads] = load_partial<n>(source, first, seen, masked);
      }
    }
    cp_async_commit();
  }
  launch_dependents();
  const float front = to_float(thread < min(peel, seen) ? source[thread] : masked);
  softmax_state state = softmax_state::of(front, exp);
  int taken = 0;
  take_in_turn<Groups - 1>([&] {
#pragma unroll 1
    for (const int end = taken + Chunks; taken < end && begin + taken * stride < seen; ++taken) {
      state.absorb(unpack<T, n>(mine[taken * Threads]).template map<float>([](T value) { return to_float(value); }),
                   exp);
    }
  });

  state = block_reduce<warps>(warp_reduce(state, merge{exp}), softmax_state::empty(), merge{exp}, of_warps);
  if constexpr (Blocks > 1) state = exchange.merged(state, exp);

  const float origin = state.origin();
  const float factor = state.scale_of(state, exp);
  if (thread < peel) target[thread] = from_float<T>(exp(front - origin) * factor);
  const T unseen = from_float<T>(0.0f * factor);  // 0, or NaN in a row that holds one
  const auto result = [&](int first, int i) {
    if (mask != Mask::none && first >= seen) return vec<T, n>{}.template map<T>([=](T) { return unseen; });
    return unpack<T, n>(mine[i]).template map<T>(
        [=](T value) { return from_float<T>(exp(to_float(value) - origin) * factor); });
  };
  int first = begin, i = 0;
  if (is_aligned<16>(target + peel)) {
    for (; first + n <= cols; first += stride, i += Threads) store(target + first, result(first, i));
  }
  for (; first < cols; first += stride, i += Threads) store_partial<n>(target, first, cols, pack(result(first, i)));
}

}  // namespace kiln
