// In which order wgmma computes the tiles of products of all ranks' rows.
#pragma once

#include "common/gemm/wgmma_block.cuh"
#include "common/team/gemm_parts.cuh"

namespace kiln::team {

/// Tiles of the products of all ranks' parts, a plane each: first this rank's own, then bands of rows of the peers' parts in turns, as
/// they arrive. Parts that end before the longest one have tiles without rows, of which one stage is copied.
template <typename Tiles, int World>
class PartsSchedule {
 public:
  __device__ __forceinline__ PartsSchedule(const PartRows& rows, long long n, long long k, int band)
      : rows_(rows),
        block_(Tiles::cluster == 1 ? 0 : static_cast<int>(cluster_block_rank())),
        columns_(static_cast<int>(n)),
        tiles_n_(ceil_div(columns_, Tiles::tile_n * Tiles::cluster_n)),
        k_tiles_(ceil_div(static_cast<int>(k), Tiles::tile_k)),
        band_(band),
        own_tiles_(ceil_div(rows.own, high)),
        peer_tiles_(ceil_div(rows.longest_of_peers<World>(), high)) {}

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / Tiles::cluster; }
  __device__ __forceinline__ int step() const { return static_cast<int>(gridDim.x) / Tiles::cluster; }
  __device__ __forceinline__ int count() const { return (own_tiles_ + peer_tiles_ * peers) * tiles_n_; }

  __device__ __forceinline__ gemm::WgmmaWork at(int index) const {
    int plane = rows_.rank;
    gemm::TileIndex tile;
    if (peers == 0 || index < own_tiles_ * tiles_n_) {
      tile = gemm::tile_in_bands(index, own_tiles_, tiles_n_, band_);
    } else {
      const unsigned of_peers = static_cast<unsigned>(index - own_tiles_ * tiles_n_);
      const unsigned full = static_cast<unsigned>(band_ * tiles_n_ * peers), band = of_peers / full;
      const unsigned height = min(band_, peer_tiles_ - static_cast<int>(band) * band_);
      const unsigned within = of_peers - band * full, peer = within / (height * tiles_n_);
      const unsigned of_peer = within - peer * (height * tiles_n_), column = of_peer / height;
      tile = {static_cast<int>(band * band_ + of_peer - column * height), static_cast<int>(column)};
      plane = following<World>(rows_.rank, static_cast<int>(peer) + 1);
    }
    const int first_row = tile.m * high, rows = rows_.of(plane);
    const int row = first_row + (Tiles::cluster_m == 1 ? 0 : block_ * Tiles::tile_m);
    const int column = (tile.n * Tiles::cluster_n + (Tiles::cluster_n == 1 ? 0 : block_)) * Tiles::tile_n;
    return gemm::copied_inside<Tiles>({row, column, 0, first_row < rows ? k_tiles_ : 1, 0, rows, plane}, columns_);
  }

 private:
  static constexpr int peers = World - 1, high = Tiles::tile_m * Tiles::cluster_m;

  static __device__ __forceinline__ int ceil_div(int a, int b) {
    return static_cast<int>((static_cast<unsigned>(a) + static_cast<unsigned>(b) - 1) / static_cast<unsigned>(b));
  }

  PartRows rows_;
  int block_, columns_, tiles_n_, k_tiles_, band_;
  int own_tiles_, peer_tiles_;  // along m, of clusters
};

}  // namespace kiln::team
