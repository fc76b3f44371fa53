// The order in which the tiles of a product are computed.
#pragma once

namespace kiln::gemm {

struct TileIndex {
  int m, n;
};

/// Bands of `group` rows of tiles, walked column by column, so that tiles that run together share x and w in L2.
__device__ __forceinline__ TileIndex tile_in_bands(int index, int tiles_m, int tiles_n, int group) {
  if (tiles_m == 1) return {0, index};
  // Without signs, which division would have to look at, and without the division where there is one band.
  const unsigned in_band = static_cast<unsigned>(group) * static_cast<unsigned>(tiles_n);
  const int first = tiles_m <= group ? 0 : static_cast<int>(static_cast<unsigned>(index) / in_band) * group;
  const int within = index - first * tiles_n;
  const int height = min(group, tiles_m - first);
  const int column = static_cast<int>(static_cast<unsigned>(within) / static_cast<unsigned>(height));
  return {first + within - column * height, column};
}

}  // namespace kiln::gemm
