// Sums over ranks of a team, in the order of the ranks and in float, rounded once: equal on all ranks and at every launch.
#pragma once

#include "common/team/exchange.cuh"
#include "common/vector.cuh"

namespace kiln::team {

/// Calls store(i, sum) for words 0 to `count` - 1 of the sums of the parts' words. Part r has `sizes[r]` words, and 0 from there on.
template <typename T, int World, int Threads, typename Store>
__device__ __forceinline__ void sum_each_word(const uint4* const (&parts)[World], const int (&sizes)[World], int count,
                                              Store store) {
  constexpr int n = 16 / sizeof(T);
  constexpr int batch = World <= 2 ? 4 : World <= 4 ? 2 : 1;  // words of a part that a thread has under way at once
  for (int first = static_cast<int>(threadIdx.x); first < count; first += Threads * batch) {
    uint4 words[batch][World];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
#pragma unroll
      for (int rank = 0; rank < World; ++rank) {
        const int at = first + i * Threads;
        words[i][rank] = at < sizes[rank] ? __ldcg(parts[rank] + at) : make_uint4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      vec<float, n> sum = to_floats<T, n>(words[i][0]);
#pragma unroll
      for (int rank = 1; rank < World; ++rank) {
        const vec<float, n> more = to_floats<T, n>(words[i][rank]);
#pragma unroll
        for (int j = 0; j < n; ++j) sum.at[j] += more.at[j];
      }
      if (first + i * Threads < count) store(first + i * Threads, from_floats<T, n>(sum));
    }
  }
}

/// Words 0 to `count` - 1 of `to` are such sums.
template <typename T, int World, int Threads>
__device__ __forceinline__ void sum_words(const uint4* const (&parts)[World], const int (&sizes)[World], uint4* to,
                                          int count) {
  sum_each_word<T, World, Threads>(parts, sizes, count, [&](int at, const uint4& sum) { to[at] = sum; });
}

/// Takes the peers' parts, and adds them to the `rows` rows of this rank's own part, at `own`.
template <typename T, int World, int Threads>
__device__ __forceinline__ void receive_sums(Exchange<World, Threads>& exchange, int rows, const uint4* own, uint4* y) {
  const Chunks<World>& chunks = exchange.chunks;
  const int rank = exchange.team.rank;
  exchange.receive_together(rows, [&](int chunk, bool came) {
    const int count = chunks.size(chunk, exchange.words_of(rows));
    uint4* to = y + chunks.first(chunk);
    if (!came) return poison_words<Threads>(to, count);
    const uint4* parts[World];
    int sizes[World];
#pragma unroll
    for (int of = 0; of < World; ++of) {
      parts[of] = of == rank ? own + chunks.first(chunk) : exchange.place(rank, chunk, of);
      sizes[of] = of == rank ? count : min(count, chunks.size(chunk, exchange.words_of(exchange.rows_from(of))));
    }
    sum_words<T, World, Threads>(parts, sizes, to, count);
  });
}

}  // namespace kiln::team
