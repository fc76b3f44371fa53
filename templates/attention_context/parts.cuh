// What ranks exchange: keys and values of the tokens of all ranks, a token a row. A rank's tokens are its rows of all sequences of the batch.
#pragma once

#include "common/attention/problem.cuh"
#include "common/team/gemm_parts.cuh"

namespace kiln::attention {

/// Rows of words of 16 bytes: a rank's keys or its values.
struct ContextRows {
  const uint4* own;      // in the tensor
  long long own_stride;  // words
  team::PushedParts parts;

  /// Copies `count` rows of `of`'s, from `row` on, to rows without gaps. `rank` and `half`: this rank, and the launch's half.
  template <int Threads>
  __device__ __forceinline__ void copy(int rank, unsigned long long half, int of, int row, int count, uint4* to) const {
    const uint4* const from = of == rank ? own + row * own_stride : parts.row(rank, half, of, row);
    const int words = count * parts.row_words;
    if (of != rank || own_stride == parts.row_words) {
      uint4* const targets[1] = {to};
      return team::copy_words<Threads>(from, targets, words);
    }
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < words; i += Threads)
      to[i] = __ldcg(from + i / parts.row_words * own_stride + i % parts.row_words);
  }
};

/// Keys and values, cut alike into chunks, a flag each.
template <int World, Mask mask>
struct ContextParts {
  ContextRows keys, values;
  int rank;

  /// Whether rows of `by` see keys of `of`, another rank.
  static __device__ __forceinline__ bool sees(int by, int of) { return mask == Mask::none || of < by; }
  __device__ __forceinline__ int chunks(int tokens) const { return keys.parts.chunks(tokens); }
  __device__ __forceinline__ int first(int chunk) const { return chunk * keys.parts.chunk_rows; }
  __device__ __forceinline__ int end(int chunk, int tokens) const {
    return min(first(chunk) + keys.parts.chunk_rows, tokens);
  }

  /// Pushes a chunk of this rank's `tokens` to all that see it. All threads of the block call it.
  template <int Threads>
  __device__ __forceinline__ void push(const team::Epoch& epoch, int chunk, int tokens) const {
    constexpr int peers = World - 1;
    const int row = first(chunk), count = end(chunk, tokens) - row;
#pragma unroll 1
    for (int i = 0; i < peers; ++i) {
      const int to =
          team::following<World>(rank, 1 + (chunk + i) % max(peers, 1));  // blocks begin with different links
      if (!sees(to, rank)) continue;
      for (const ContextRows* each : {&keys, &values})
        each->copy<Threads>(rank, epoch.half(), rank, row, count, each->parts.row(to, epoch.half(), rank, row));
    }
  }
};

}  // namespace kiln::attention
