// A cluster of blocks a row, for rows too long for the registers of one block: each keeps a part, and they agree on the
// largest element and the sum through distributed shared memory. sm_90 and later.
#pragma once

#include "common/cluster.cuh"
#include "exponentials.cuh"

namespace kiln {

template <typename T, int Blocks, int Threads, int N, int Items>
__global__ __launch_bounds__(Threads) void softmax_cluster_row(const T* x, T* y, long long columns, long long x_row_stride,
                                                               long long y_row_stride) {
  using share = row_share<T, Blocks * Threads, N, Items>;
  constexpr int warps = Threads / 32;
  __shared__ softmax_state of_warps[warps];
  __shared__ float2 of_blocks[Blocks];
  cluster_arrive();  // the wait below: a block's shared memory may be written once the block runs

  const int cols = static_cast<int>(columns);
  const long long row = blockIdx.x / Blocks;
  const unsigned rank = cluster_block_rank();
  const int thread = rank * Threads + threadIdx.x;
  const int peel = peel_of<N>(x + row * x_row_stride, cols);
  const share values = share::template load_row<true>(x + row * x_row_stride, cols, thread, peel, from_float<T>(-infinity()));
  const exponentials<T, Blocks * Threads, N, Items> part(values);
  const softmax_state mine = block_reduce<warps>(part.state, softmax_state::empty(), merge{}, of_warps);

  cluster_wait();
  if (threadIdx.x < Blocks) store_cluster(mapa(&of_blocks[rank], threadIdx.x), make_float2(mine.largest, mine.sum));
  cluster_arrive();
  cluster_wait();

  softmax_state whole = softmax_state::empty();
#pragma unroll
  for (int i = 0; i < Blocks; ++i) whole = merge{}(whole, {of_blocks[i].x, of_blocks[i].y});
  part.scaled(whole).store_row(y + row * y_row_stride, cols, thread, peel);
}

}  // namespace kiln
