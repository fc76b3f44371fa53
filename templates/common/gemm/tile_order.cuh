// The order in which the tiles of a product are computed.
#pragma once

namespace kiln::gemm {

struct TileIndex {
  int m, n;
};

/// Bands of `group` rows of tiles, walked column by column, so that tiles that run together share x and w in L2.
__device__ __forceinline__ TileIndex tile_in_bands(int index, int tiles_m, int tiles_n, int group) {
  const int band = index / (group * tiles_n), first = band * group, within = index - first * tiles_n;
  const int height = min(group, tiles_m - first);
  return {first + within % height, within / height};
}

}  // namespace kiln::gemm
