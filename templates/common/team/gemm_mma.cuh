// Products of all ranks' parts by mma.sync, a tile a block: common/gemm/mma_tile.cuh says how.
#pragma once

#include "common/gemm/epilogue.cuh"
#include "common/gemm/mma_tile.cuh"
#include "common/team/gemm_parts.cuh"

namespace kiln::team {

/// For blocks (tiles of the longest part, ranks), with the dynamic shared memory of the tiling. The part of a rank
/// begins at x_of(plane) and y_of(plane). After the predecessor has ended, make_rows() gives the PartRows, or what has
/// their of(plane).
template <typename T, int tile_m, int tile_n, int tile_k, int warps, int stages, typename MakeRows, typename X,
          typename Y>
__device__ __forceinline__ void multiply_part_tile(MakeRows make_rows, X x_of, const T* w, Y y_of, long long n,
                                                   long long k, int band) {
  using namespace gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  using Tiles = Tiling<Layout::nt, tile_m, tile_n, tile_k, warps, stages>;
  extern __shared__ __align__(128) char ring[];
  wait_for_predecessor();
  launch_dependents();

  const int plane = static_cast<int>(blockIdx.y), m = make_rows().of(plane);
  const int tiles_m = (m + tile_m - 1) / tile_m;
  const int tiles_n = static_cast<int>((n + tile_n - 1) / tile_n);
  if (static_cast<int>(blockIdx.x) >= tiles_m * tiles_n) return;
  const TileIndex tile = tile_in_bands(static_cast<int>(blockIdx.x), tiles_m, tiles_n, band);
  const long long first_row = static_cast<long long>(tile.m) * tile_m,
                  first_column = static_cast<long long>(tile.n) * tile_n;
  Accumulators<Tiles> sums = {};
  multiply_tile<T, Tiles>(sums, ring, {x_of(plane), w, k, k, m, n}, first_row, first_column, 0, static_cast<int>(k),
                          static_cast<int>((k + tile_k - 1) / tile_k));
  store_tile<Tiles>(
      sums, ring,
      AlignedEpilogue<Plain>{y_of(plane), nullptr, nullptr, nullptr, nullptr, nullptr, n, 0, 0, 0, 1.0f, m, n},
      first_row, first_column);
}

}  // namespace kiln::team
