// The keys of a launch as a block of attention_context_fused goes through them: this rank's own first, then those of its peers as they arrive.
#pragma once

#include "common/attention/forward_wgmma_tile.cuh"
#include "common/team/gemm_arrivals.cuh"
#include "parts.cuh"

namespace kiln::attention {

/// The block's shared memory after that of SharedLayout.
struct ContextShared {
  team::ArrivalStorage arrivals;
  team::Claims::storage pushes;
  unsigned came[team::most_ranks]
               [team::flags_per_epoch / 32];  // chunks that the thread which copies has seen to be there

  template <typename Tiles>
  static constexpr int offset = (SharedLayout<Tiles>::bytes + 15) / 16 * 16;
};

/// A segment is the keys of one rank. Segment 0 is this rank's own; a causal rank goes back from there, any other goes on.
template <int World, Mask mask>
struct Segments {
  team::ArrivingRows rows;

  __device__ __forceinline__ int count() const { return mask == Mask::causal ? rows.rank + 1 : World; }
  __device__ __forceinline__ int rank_of(int segment) const {
    return mask == Mask::causal ? rows.rank - segment : team::following<World>(rows.rank, segment);
  }
  /// Keys of a sequence in a segment. Waits for the peers' numbers at the first that is not this rank's own.
  __device__ __forceinline__ int keys(int segment) const {
    if (segment == 0) return rows.own;
    if (segment == 1) mbarrier_wait(&rows.shared->counted);
    return rows.of(rank_of(segment));
  }
  /// The blocks that the tile of queries from `row` on sees of one.
  template <int tile_m, int tile_n>
  __device__ __forceinline__ KeyBlocks blocks(int segment, int keys, int row) const {
    if (mask == Mask::causal && segment == 0) keys = min(row + tile_m, keys);
    return {0, ceil_div(keys, tile_n)};
  }
};

}  // namespace kiln::attention
