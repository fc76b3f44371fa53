// Each rank pushes every part of x to the rank that it is for, which adds up what arrives.
#pragma once

#include "common/length.cuh"
#include "common/team/sum.cuh"

namespace kiln {

/// x and y in words of 16 bytes. `counts`: the rows of each rank; null where all have as many as this one.
template <typename T, int World, int Threads>
__global__ __launch_bounds__(Threads) void reduce_scatter_push(const uint4* x, const int* counts, uint4* y,
                                                               axis_length rows_given, long long part_stride,
                                                               int row_words, int most_rows, int chunk_words,
                                                               int most_chunks, int pushers,
                                                               const __grid_constant__ team::Peers workspace,
                                                               const __grid_constant__ team::Team team) {
  using Exchange = team::Exchange<World, Threads>;
  __shared__ typename Exchange::storage storage;
  Exchange exchange(team, workspace, storage, {chunk_words, most_chunks}, row_words, most_rows, pushers);
  const int rows = rows_given.read();
  const int longest = static_cast<int>(min(part_stride, static_cast<long long>(most_rows)));
  const auto part = [&](int rank) { return x + rank * part_stride * row_words; };
  const auto rows_for = [&](int rank) { return counts == nullptr ? rows : max(0, min(counts[rank], longest)); };

  exchange.push_to_each(rows_for, [&](int to, int chunk) {
    uint4* targets[1] = {exchange.place(to, chunk, team.rank)};
    team::copy_words<Threads>(part(to) + exchange.chunks.first(chunk), targets,
                              exchange.chunks.size(chunk, exchange.words_of(rows_for(to))));
  });
  team::receive_sums<T>(exchange, rows, part(team.rank), y);
  exchange.end();
}

}  // namespace kiln
