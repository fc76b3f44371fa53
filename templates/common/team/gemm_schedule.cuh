// In which order wgmma computes the tiles of products of all ranks' rows.
#pragma once

#include "common/gemm/wgmma_block.cuh"
#include "common/team/gemm_parts.cuh"

namespace kiln::team {

/// Tiles of the products of all ranks' parts, a plane each. This rank's own come first, then bands of rows of the
/// peers' parts in turns, as they arrive. Parts that end before the longest one have tiles without rows, of which one
/// stage is copied.
///
/// Rows are PartRows or ArrivingRows, which are asked for the peers' only once this rank's own tiles are all taken.
template <typename Tiles, int World, typename Rows = PartRows>
class PartsSchedule {
 public:
  __device__ __forceinline__ PartsSchedule(const Rows& rows, long long n, long long k, int band)
      : rows_(rows),
        block_(Tiles::cluster == 1 ? 0 : static_cast<int>(cluster_block_rank())),
        columns_(static_cast<int>(n)),
        tiles_n_(ceil_div(columns_, Tiles::tile_n * Tiles::cluster_n)),
        k_tiles_(ceil_div(static_cast<int>(k), Tiles::tile_k)),
        band_(band),
        own_tiles_(ceil_div(rows.own, high)) {}

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / Tiles::cluster; }
  __device__ __forceinline__ int step() const { return static_cast<int>(gridDim.x) / Tiles::cluster; }
  __device__ __forceinline__ int own_count() const { return own_tiles_ * tiles_n_; }

  __device__ __forceinline__ bool has(int index) const {
    return index < own_count() || (peers > 0 && index < own_count() + peer_tiles() * peers * tiles_n_);
  }
  /// Stands for a number of tiles that is known only when it is compared with.
  struct Count {
    const PartsSchedule& of;
    friend __device__ __forceinline__ bool operator<(int index, const Count& count) { return count.of.has(index); }
  };
  __device__ __forceinline__ Count count() const { return {*this}; }

  __device__ __forceinline__ gemm::WgmmaWork at(int index) const {
    int plane = rows_.rank;
    gemm::TileIndex tile;
    if (peers == 0 || index < own_count()) {
      tile = gemm::tile_in_bands(index, own_tiles_, tiles_n_, band_);
    } else {
      const unsigned of_peers = static_cast<unsigned>(index - own_count());
      const unsigned full = static_cast<unsigned>(band_ * tiles_n_ * peers), band = of_peers / full;
      const unsigned height = min(band_, peer_tiles() - static_cast<int>(band) * band_);
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

  /// Along m, of the longest part, in rows of the cluster's tiles.
  __device__ __forceinline__ int peer_tiles() const {
    if (peer_tiles_ < 0) peer_tiles_ = ceil_div(rows_.template longest_of_peers<World>(), high);
    return peer_tiles_;
  }

  Rows rows_;
  int block_, columns_, tiles_n_, k_tiles_, band_;
  int own_tiles_;  // as peer_tiles()
  mutable int peer_tiles_ = -1;
};

}  // namespace kiln::team
