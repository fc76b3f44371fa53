// Each rank stores all of x to every peer as packets, and adds up what arrives.
#pragma once

#include "common/team/packets.cuh"

namespace kiln {

/// x and y in words of 16 bytes. A block has Threads * Words of them.
template <typename T, int World, int Threads, int Words>
__global__ __launch_bounds__(Threads) void all_reduce_packets(const uint4* x, uint4* y, axis_length rows, int row_words,
                                                              const __grid_constant__ team::Team team) {
  using Sum = team::PacketSum<T, World, Threads, Words>;
  constexpr int count = Threads * Words;
  __shared__ typename Sum::storage storage;
  Sum sum(team, storage, x, rows, row_words, static_cast<int>(blockIdx.x) * count, count);
  sum.push();
  uint4 sums[Words];
  const bool came = sum.sum(sums);
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    if (sum.has(i)) y[sum.index(i)] = came ? sums[i] : team::poison();
  }
  sum.end();
}

}  // namespace kiln
