// The product by mma.sync, a tile a block, to a workspace: common/gemm/mma_tile.cuh says how. The exchange of it is all_reduce's.
#pragma once

#include "common/gemm/epilogue.cuh"
#include "common/gemm/mma_tile.cuh"
#include "common/length.cuh"
#include "common/team/all_reduce.cuh"

/// grid (tiles of rows * tiles of n), block (warps * 32), dynamic shared memory as push_mma.toml says.
template <typename T, int tile_m, int tile_n, int tile_k, int warps, int stages>
__global__ void __launch_bounds__(warps * 32, 1)
    gemm_all_reduce_mma(const T* x, const T* w, T* product, kiln::axis_length rows, long long n, long long k,
                        int band) {
  using namespace kiln::gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  using Tiles = Tiling<Layout::nt, tile_m, tile_n, tile_k, warps, stages>;
  extern __shared__ __align__(128) char ring[];
  kiln::wait_for_predecessor();
  kiln::launch_dependents();

  const int m = rows.read();
  const int tiles_m = (m + tile_m - 1) / tile_m, tiles_n = static_cast<int>((n + tile_n - 1) / tile_n);
  if (static_cast<int>(blockIdx.x) >= tiles_m * tiles_n) return;
  const TileIndex tile = tile_in_bands(static_cast<int>(blockIdx.x), tiles_m, tiles_n, band);
  const long long first_row = static_cast<long long>(tile.m) * tile_m,
                  first_column = static_cast<long long>(tile.n) * tile_n;
  Accumulators<Tiles> sums = {};
  multiply_tile<T, Tiles>(sums, ring, {x, w, k, k, m, n}, first_row, first_column, 0, static_cast<int>(k),
                          static_cast<int>((k + tile_k - 1) / tile_k));
  store_tile<Tiles>(
      sums, ring, AlignedEpilogue<Plain>{product, nullptr, nullptr, nullptr, nullptr, nullptr, n, 0, 0, 0, 1.0f, m, n},
      first_row, first_column);
}
