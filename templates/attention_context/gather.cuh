// The first pass: each rank pushes its keys and values to the ranks that see them. It lays down what it sees as
// attention_forward's kernels take packed sequences, and writes their offsets.
#pragma once

#include "common/view.cuh"
#include "parts.cuh"

namespace kiln::attention {

template <int World>
struct ContextStorage {
  team::Epoch::storage epoch;
  int rows_of[World];  // of a sequence, by rank
  bool is_last;        // of the blocks
};

/// Where what a rank sees lies, sequence by sequence, and the offsets of sequences.
struct PackedContext {
  uint4 *keys, *values;
  int *query_offsets, *key_offsets;  // [batch + 1]

  /// For one block, after all others. Where the launch has failed, each query sees a key of NaN.
  template <int Threads>
  __device__ __forceinline__ void finish(int batch, int rows, int seen, bool failed, int key_words) const {
    if (failed) seen = rows;
    for (int i = static_cast<int>(threadIdx.x); i <= batch; i += Threads) {
      query_offsets[i] = i * rows;
      key_offsets[i] = i * seen;
    }
    for (int sequence = 0; failed && sequence < batch; ++sequence)
      team::poison_words<Threads>(keys + static_cast<long long>(sequence) * seen * key_words, key_words);
  }
};

}  // namespace kiln::attention

/// `rows` of each of `batch` sequences. k, v and their strides are in words. A part of the workspace has room for `most_tokens` rows, of
/// `key_words` and `value_words`.
template <int World, kiln::attention::Mask mask, int Threads>
__global__ __launch_bounds__(Threads) void attention_context_gather(
    kiln::view<const uint4, 1> k, kiln::view<const uint4, 1> v, uint4* keys, uint4* values, int* query_offsets,
    int* key_offsets, int batch, int rows, int key_words, int value_words, int most_tokens, int chunk_rows,
    const __grid_constant__ kiln::team::Peers pushed_keys, const __grid_constant__ kiln::team::Peers pushed_values,
    const __grid_constant__ kiln::team::Team team) {
  using namespace kiln::attention;
  using namespace kiln::team;
  constexpr int peers = World - 1;
  __shared__ ContextStorage<World> shared;
  Epoch epoch(team, shared.epoch);
  const ContextParts<World, mask> parts = {
      {k.address, k.strides[0], {pushed_keys, key_words, most_tokens, chunk_rows}},
      {v.address, v.strides[0], {pushed_values, value_words, most_tokens, chunk_rows}},
      team.rank};
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x);
  const int step = static_cast<int>(gridDim.x), tokens = batch * rows;
  for (int chunk = first; !epoch.failed() && chunk < parts.chunks(tokens); chunk += step) {
    parts.template push<Threads>(epoch, chunk, tokens);
    __syncthreads();
    if (thread < peers) epoch.send(following<World>(team.rank, thread + 1), chunk, rows);
  }
  kiln::launch_dependents();

  if (thread < World) shared.rows_of[thread] = rows;
  __syncthreads();
  epoch.await_all(peers, [&](int waiter) {
    const int peer = following<World>(team.rank, waiter + 1);
    return (shared.rows_of[peer] = epoch.await(peer, 0)) >= 0;
  });
  const auto is_seen = [&](int of) { return of == team.rank || ContextParts<World, mask>::sees(team.rank, of); };
  int seen = 0, longest = 0;  // rows of a sequence: of all that are seen, and of the longest part
  for (int of = 0; of < World; ++of) {
    seen += is_seen(of) ? shared.rows_of[of] : 0;
    longest = max(longest, shared.rows_of[of]);
  }
  for (int index = first; !epoch.failed() && index < parts.chunks(batch * longest) * World; index += step) {
    const int chunk = index / World, of = following<World>(team.rank, index % World);
    const int rows_of = shared.rows_of[of], end = parts.end(chunk, batch * rows_of);
    if (!is_seen(of) || parts.first(chunk) >= end) continue;
    if (of != team.rank && !epoch.await_all(1, [&](int) { return epoch.await(of, chunk) >= 0; })) break;
    int before = 0;
    for (int other = 0; other < of; ++other) before += is_seen(other) ? shared.rows_of[other] : 0;
    for (int row = parts.first(chunk), next; row < end; row = next) {
      const int sequence = row / rows_of;
      next = min(end, (sequence + 1) * rows_of);
      const long long to = static_cast<long long>(sequence) * seen + before + row - sequence * rows_of;
      parts.keys.template copy<Threads>(team.rank, epoch.half(), of, row, next - row, keys + to * key_words);
      parts.values.template copy<Threads>(team.rank, epoch.half(), of, row, next - row, values + to * value_words);
    }
  }

  // The last block knows of all failures, and so alone writes what later kernels go by.
  __syncthreads();
  Control& own = *team.control[team.rank];
  if (thread == 0) {
    __threadfence();
    shared.is_last = atomicAdd(&own.claimed[0], 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (shared.is_last)
    PackedContext{keys, values, query_offsets, key_offsets}.finish<Threads>(
        batch, rows, seen, *static_cast<const volatile unsigned*>(&own.failed) != 0, key_words);
  epoch.end();
}
