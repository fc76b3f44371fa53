// Each rank pushes every peer's part of x, and copies what arrives to y. On one of the two sides the rows of a part lie between those of
// other parts: there the words are transposed on their way.
#pragma once

#include "common/length.cuh"
#include "common/team/exchange.cuh"
#include "direction.cuh"

namespace kiln {

/// A rank's part of a tensor, in words of 16 bytes: rows of `row_words`, `row_stride` apart.
template <typename Word>
struct part_rows {
  Word* words;
  long long row_stride;
};

/// Words `first` to `first + count - 1` of a part, as if its rows were dense, to the same words of another place.
template <int Threads, bool FromDense, bool ToDense>
__device__ __forceinline__ void copy_rows(part_rows<const uint4> from, part_rows<uint4> to, int row_words,
                                          long long first, int count) {
  constexpr int batch = 4;  // loads of a thread under way at once
  const long long first_row = first / row_words;
  const int skipped = static_cast<int>(first - first_row * row_words);
  const auto offset = [&](int i, long long row_stride) {
    const unsigned at = static_cast<unsigned>(skipped + i), row = at / static_cast<unsigned>(row_words);
    return (first_row + row) * row_stride + (at - row * static_cast<unsigned>(row_words));
  };
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Threads * batch) {
    uint4 words[batch];
#pragma unroll
    for (int j = 0; j < batch; ++j) {
      const int at = i + j * Threads;
      if (at < count) words[j] = __ldcg(from.words + (FromDense ? first + at : offset(at, from.row_stride)));
    }
#pragma unroll
    for (int j = 0; j < batch; ++j) {
      const int at = i + j * Threads;
      if (at < count) to.words[ToDense ? first + at : offset(at, to.row_stride)] = words[j];
    }
  }
}

/// As copy_rows, of NaN.
template <int Threads>
__device__ __forceinline__ void poison_rows(part_rows<uint4> to, int row_words, long long first, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Threads) {
    const long long row = (first + i) / row_words;
    to.words[row * to.row_stride + (first + i - row * row_words)] = team::poison();
  }
}

/// What to scatter_heads is x [rows, heads, dim] and y [ranks, rows, heads / ranks, dim], to gather_heads is y and x. `row_words`: of a
/// row's heads / ranks heads. `rank_stride`: rows between the ranks' parts in the tensor of rank 4. `counts_in`: the rows of each rank's part
/// of x, by gather_heads; null where all are as long as this rank's. `counts_out`: the rows that each rank sent, by scatter_heads; may be
/// null.
template <int World, int Threads, Direction direction>
__global__ __launch_bounds__(Threads) void all_to_all_push(const uint4* x, const int* counts_in, uint4* y,
                                                           int* counts_out, axis_length rows_given,
                                                           long long rank_stride, int row_words, int most_rows,
                                                           int chunk_words, int most_chunks, int pushers,
                                                           const __grid_constant__ team::Peers workspace,
                                                           const __grid_constant__ team::Team team) {
  using Exchange = team::Exchange<World, Threads>;
  constexpr bool scatters = direction == Direction::scatter_heads;
  __shared__ typename Exchange::storage storage;
  Exchange exchange(team, workspace, storage, {chunk_words, most_chunks}, row_words, most_rows, pushers);

  const int rows = rows_given.read();
  const int longest = static_cast<int>(min(rank_stride, static_cast<long long>(most_rows)));
  const auto rows_for = [&](int rank) {
    return scatters || counts_in == nullptr ? rows : max(0, min(counts_in[rank], longest));
  };
  const long long all_heads = static_cast<long long>(World) * row_words;
  const auto from = [&](int rank) {
    return scatters ? part_rows<const uint4>{x + rank * row_words, all_heads}
                    : part_rows<const uint4>{x + rank * rank_stride * row_words, row_words};
  };
  const auto to = [&](int rank) {
    return scatters ? part_rows<uint4>{y + rank * rank_stride * row_words, row_words}
                    : part_rows<uint4>{y + rank * row_words, all_heads};
  };
  const auto tell_count = [&](int rank, int chunk, int count) {
    if (scatters && counts_out != nullptr && chunk == 0 && threadIdx.x == 0) counts_out[rank] = count;
  };

  exchange.template push_to_each<true>(rows_for, [&](int rank, int chunk) {
    const long long begin = exchange.chunks.first(chunk);
    const int words =
        exchange.chunks.size(chunk, exchange.words_of(rank == team.rank ? min(rows, rows_for(rank)) : rows_for(rank)));
    if (rank != team.rank) {
      const part_rows<uint4> place{exchange.place(rank, chunk, team.rank) - begin, row_words};
      return copy_rows<Threads, !scatters, true>(from(rank), place, row_words, begin, words);
    }
    tell_count(rank, chunk, exchange.failed() ? -1 : rows);
    if (exchange.failed()) return poison_rows<Threads>(to(rank), row_words, begin, words);
    copy_rows<Threads, !scatters, scatters>(from(rank), to(rank), row_words, begin, words);
  });
  exchange.receive_each([&](int rank, int chunk, int count) {
    const long long begin = exchange.chunks.first(chunk);
    const int longest_here = scatters ? longest : rows;
    const int words =
        exchange.chunks.size(chunk, exchange.words_of(count < 0 ? longest_here : min(count, longest_here)));
    tell_count(rank, chunk, count);
    if (count < 0) return poison_rows<Threads>(to(rank), row_words, begin, words);
    const part_rows<const uint4> place{exchange.place(team.rank, chunk, rank) - begin, row_words};
    copy_rows<Threads, true, scatters>(place, to(rank), row_words, begin, words);
  });
  exchange.end();
}

}  // namespace kiln
