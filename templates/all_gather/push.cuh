// Each rank pushes its rows to all others, chunk by chunk, and copies what arrives to y.
#pragma once

#include "common/length.cuh"
#include "common/team/exchange.cuh"

namespace kiln {

/// x and y in words of 16 bytes.
template <int World, int Threads>
__global__ __launch_bounds__(Threads) void all_gather_push(const uint4* x, uint4* y, int* counts,
                                                           axis_length rows_given, long long rank_stride, int row_words,
                                                           int most_rows, int chunk_words, int most_chunks, int pushers,
                                                           const __grid_constant__ team::Peers workspace,
                                                           const __grid_constant__ team::Team team) {
  using Exchange = team::Exchange<World, Threads>;
  __shared__ typename Exchange::storage storage;
  Exchange exchange(team, workspace, storage, {chunk_words, most_chunks}, row_words, most_rows, pushers);
  const int rows = rows_given.read();
  const auto part = [&](int rank) { return y + rank * rank_stride * row_words; };
  const auto tell_count = [&](int rank, int chunk, int rows) {
    if (counts != nullptr && chunk == 0 && threadIdx.x == 0) counts[rank] = rows;
  };

  exchange.push_to_all(rows, [&](int chunk) {
    const int words = exchange.chunks.size(chunk, exchange.words_of(rows));
    uint4* targets[World] = {part(team.rank) + exchange.chunks.first(chunk)};
    if (exchange.failed()) {
      team::poison_words<Threads>(targets[0], words);
    } else {
#pragma unroll
      for (int i = 1; i < World; ++i) targets[i] = exchange.place(exchange.peer(i), chunk, team.rank);
      team::copy_words<Threads>(x + exchange.chunks.first(chunk), targets, words);
    }
    tell_count(team.rank, chunk, exchange.failed() ? -1 : rows);
  });
  exchange.receive_each([&](int from, int chunk, int rows) {
    const long long part_words = min(exchange.words_of(rows < 0 ? most_rows : rows), rank_stride * row_words);
    const int words = exchange.chunks.size(chunk, part_words);
    uint4* targets[1] = {part(from) + exchange.chunks.first(chunk)};
    if (rows < 0) {
      team::poison_words<Threads>(targets[0], words);
    } else {
      team::copy_words<Threads>(exchange.place(team.rank, chunk, from), targets, words);
    }
    tell_count(from, chunk, rows);
  });
  exchange.end();
}

}  // namespace kiln
