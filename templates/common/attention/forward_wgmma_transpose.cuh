// The warps of attention_wgmma that transpose values of 8 bits, block by block, from where TMA lays them down to where wgmma takes them.
#pragma once

#include "common/attention/byte_values.cuh"
#include "common/attention/forward_wgmma_tile.cuh"

namespace kiln::attention {

template <typename Tiles, bool cuts>
__device__ __forceinline__ void transpose_tile(const Place& from, const Place& to, int warp, int count) {
  transpose_values<typename Tiles::Value, typename Tiles::Transposed, Tiles::tile_n, Tiles::Form::value_dim,
                   Tiles::transposing_warps, cuts>(from.data, to.data, warp, count);
}

/// For each of Tiles::transposing_warps, of which this is `warp`, until there is no more work.
template <typename Tiles>
__device__ __forceinline__ void transpose_all(const SharedLayout<Tiles>& shared, const Work* works,
                                              const Window& window, int warp) {
  using Form = typename Tiles::Form;
  RingPosition<SharedLayout<Tiles>::works> at;
  RingPosition<Tiles::stages> values_at;
#pragma unroll 1
  for (;; at.advance()) {
    const Place place = shared.works_at(at.slot);
    mbarrier_wait(place.full, at.parity);
    const Work work = agreed(works[at.slot]);
    release(place);
    if (work.exists == 0) break;
    const Visible<Form::mask> visible(work.of.queries, work.of.keys, window);
    const int last = min(work.row + Tiles::tile_m, work.of.queries) - 1;
    const KeyBlocks blocks = key_blocks(visible, work.row, last, Tiles::tile_n);
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin; --block, values_at.advance()) {
      const Place from = shared.values(values_at.slot), to = shared.weighted(values_at.slot);
      mbarrier_wait(from.full, values_at.parity);
      mbarrier_wait(to.empty, values_at.parity ^ 1);
      // What another sequence has there may be NaN, and 0 * NaN would be NaN.
      const int count = work.of.keys - block * Tiles::tile_n;
      if (Form::layout == Layout::packed && count < Tiles::tile_n) {
        transpose_tile<Tiles, true>(from, to, warp, count);
      } else {
        transpose_tile<Tiles, false>(from, to, warp, count);
      }
      fence_proxy_async();
      __syncwarp();
      release(from);
      if (threadIdx.x % 32 == 0) mbarrier_arrive(to.full);
    }
  }
}

}  // namespace kiln::attention
