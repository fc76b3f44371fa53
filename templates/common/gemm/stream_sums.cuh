// Partial sums of a product brought together: of a block's warps through shared memory, of a cluster's blocks through
// distributed shared memory. Both are added in a fixed order.
#pragma once

#include "common/cluster.cuh"
#include "common/gemm/stream_ring.cuh"

namespace kiln::gemm {

__device__ __forceinline__ Sums add(const Sums& a, const Sums& b) {
  return {a.at[0] + b.at[0], a.at[1] + b.at[1], a.at[2] + b.at[2], a.at[3] + b.at[3]};
}

/// The block's sums of one of its tiles, this lane's part: of the warps that share k, in their order.
template <class Share>
__device__ __forceinline__ Sums sum_of_warps(const char* rings, int tile) {
  const char* const from = rings + tile / Share::warp_tiles * Share::warps_k * Share::ring_bytes +
                           tile % Share::warp_tiles * Share::tile_bytes + threadIdx.x % 32 * sizeof(Sums);
  Sums sum = load<4>(reinterpret_cast<const float*>(from));
#pragma unroll
  for (int warp = 1; warp < Share::warps_k; ++warp)
    sum = add(sum, load<4>(reinterpret_cast<const float*>(from + warp * Share::ring_bytes)));
  return sum;
}

/// How the blocks of a cluster add what each has of the same tiles. Tile i belongs to block i % blocks. All blocks,
/// that one included, send it their sums.
template <class Share>
struct Exchange {
  static constexpr int most_owned = (Share::tiles + Share::blocks - 1) / Share::blocks;
  alignas(16) Sums received[most_owned][Share::blocks][32];
  unsigned long long barrier;

  static __device__ __forceinline__ int owned(int rank) {
    return (Share::tiles - rank + Share::blocks - 1) / Share::blocks;
  }

  /// By all threads, before anything that takes long: the others may send once this block runs.
  __device__ __forceinline__ void open(int rank) {
    if (threadIdx.x == 0) mbarrier_expect(&barrier, owned(rank) * Share::blocks * Share::tile_bytes);
    cluster_arrive_relaxed();
  }
  /// Once all threads have waited for the cluster.
  __device__ __forceinline__ void send(int rank, int tile, const Sums& sums) {
    const int owner = tile % Share::blocks;
    const unsigned to = mapa(&received[tile / Share::blocks][rank][threadIdx.x % 32], owner);
    const unsigned at = mapa(&barrier, owner);
    st_async(to, make_float2(sums.at[0], sums.at[1]), at);
    st_async(to + 8, make_float2(sums.at[2], sums.at[3]), at);
  }
  /// Returns all blocks' sums, in their order, of the i-th tile that this block owns.
  /// REQUIRES: mbarrier_wait(&barrier) has returned.
  __device__ __forceinline__ Sums sum_of_blocks(int i) const {
    Sums sum = load<4>(received[i][0][threadIdx.x % 32].at);
#pragma unroll
    for (int block = 1; block < Share::blocks; ++block)
      sum = add(sum, load<4>(received[i][block][threadIdx.x % 32].at));
    return sum;
  }
};

}  // namespace kiln::gemm
