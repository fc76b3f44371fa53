// Each rank pushes all of x to every peer, and adds up what arrives. It is one exchange, for sizes at which latency
// counts. all_reduce's kernel, and gemm_all_reduce's last.
#pragma once

#include "common/length.cuh"
#include "common/team/sum.cuh"

namespace kiln {

/// x and y in words of 16 bytes.
template <typename T, int World, int Threads>
__global__ __launch_bounds__(Threads) void all_reduce_push(const uint4* x, uint4* y, axis_length rows_given,
                                                           int row_words, int most_rows, int chunk_words,
                                                           int most_chunks, int pushers,
                                                           const __grid_constant__ team::Peers workspace,
                                                           const __grid_constant__ team::Team team) {
  using Exchange = team::Exchange<World, Threads>;
  __shared__ typename Exchange::storage storage;
  Exchange exchange(team, workspace, storage, {chunk_words, most_chunks}, row_words, most_rows, pushers);
  const int rows = rows_given.read();

  if constexpr (World > 1) {
    exchange.push_to_all(rows, [&](int chunk) {
      if (exchange.failed()) return;
      uint4* targets[World - 1];
#pragma unroll
      for (int i = 1; i < World; ++i) targets[i - 1] = exchange.place(exchange.peer(i), chunk, team.rank);
      team::copy_words<Threads>(x + exchange.chunks.first(chunk), targets,
                                exchange.chunks.size(chunk, exchange.words_of(rows)));
    });
  }
  team::receive_sums<T>(exchange, rows, x, y);
  exchange.end();
}

}  // namespace kiln
