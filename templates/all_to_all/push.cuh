// Each rank pushes every peer's part of x, copies its own to y, and then what arrives. On one of the two sides the rows of a part lie between
// those of other parts: there the words are transposed on their way.
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

/// Words of a part, as if its rows were dense, `step` apart. Steps are added up: a division for each word takes longer than its copy.
template <bool Dense, typename Word>
class PartWalk {
 public:
  __device__ __forceinline__ PartWalk(part_rows<Word> part, int row_words, long long first, int step)
      : row_words_(static_cast<unsigned>(row_words)) {
    if constexpr (Dense) {
      at_ = part.words + first;
      step_ = step;
    } else {
      const long long row = first / row_words;
      column_ = static_cast<unsigned>(first - row * row_words);
      at_ = part.words + row * part.row_stride + column_;
      const unsigned rows = static_cast<unsigned>(step) / row_words_;
      step_column_ = static_cast<unsigned>(step) - rows * row_words_;
      step_ = rows * part.row_stride + step_column_;
      gap_ = part.row_stride - row_words;
    }
  }

  /// The word it is at, which it then leaves.
  __device__ __forceinline__ Word* next() {
    Word* const here = at_;
    at_ += step_;
    if constexpr (!Dense) {
      column_ += step_column_;
      if (column_ >= row_words_) {
        column_ -= row_words_;
        at_ += gap_;
      }
    }
    return here;
  }

 private:
  Word* at_;
  long long step_, gap_ = 0;  // to the word `step` further, and past the end of a row
  unsigned row_words_, column_ = 0, step_column_ = 0;
};

/// Words `first` to `first + count - 1` of a part, as if its rows were dense, to the same words of another place.
template <int Threads, bool FromDense, bool ToDense>
__device__ __forceinline__ void copy_rows(part_rows<const uint4> from, part_rows<uint4> to, int row_words,
                                          long long first, int count) {
  constexpr int batch = 8;  // loads of a thread under way at once
  const int thread = static_cast<int>(threadIdx.x);
  PartWalk<FromDense, const uint4> source(from, row_words, first + thread, Threads);
  PartWalk<ToDense, uint4> target(to, row_words, first + thread, Threads);
  for (int i = thread; i < count; i += Threads * batch) {
    uint4 words[batch];
#pragma unroll
    for (int j = 0; j < batch; ++j) {
      const uint4* const word = source.next();
      if (i + j * Threads < count) words[j] = __ldcg(word);
    }
#pragma unroll
    for (int j = 0; j < batch; ++j) {
      uint4* const word = target.next();
      if (i + j * Threads < count) *word = words[j];
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

  exchange.push_to_each(rows_for, [&](int rank, int chunk) {
    const long long begin = exchange.chunks.first(chunk);
    const part_rows<uint4> place{exchange.place(rank, chunk, team.rank) - begin, row_words};
    copy_rows<Threads, !scatters, true>(from(rank), place, row_words, begin,
                                        exchange.chunks.size(chunk, exchange.words_of(rows_for(rank))));
  });
  const int own_rows = min(rows, rows_for(team.rank));
  exchange.keep_own(own_rows, [&](int chunk) {
    const long long begin = exchange.chunks.first(chunk);
    const int words = exchange.chunks.size(chunk, exchange.words_of(own_rows));
    tell_count(team.rank, chunk, exchange.failed() ? -1 : rows);
    if (exchange.failed()) return poison_rows<Threads>(to(team.rank), row_words, begin, words);
    copy_rows<Threads, !scatters, scatters>(from(team.rank), to(team.rank), row_words, begin, words);
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
