// The product by mma.sync, a tile a block, to a workspace: common/gemm/mma_tile.cuh says how. It is exchanged as all_reduce does.
#pragma once

#include "common/length.cuh"
#include "common/team/all_reduce.cuh"
#include "common/team/gemm_mma.cuh"
#include "common/team/two_shot.cuh"

/// grid (tiles of rows * tiles of n), block (warps * 32), dynamic shared memory as push_mma.toml says.
template <typename T, int tile_m, int tile_n, int tile_k, int warps, int stages>
__global__ void __launch_bounds__(warps * 32, 1)
    gemm_all_reduce_mma(const T* x, const T* w, T* product, kiln::axis_length rows, long long n, long long k,
                        int band) {
  struct OnePart {
    int rows;
    __device__ __forceinline__ int of(int) const { return rows; }
  };
  kiln::team::multiply_part_tile<T, tile_m, tile_n, tile_k, warps, stages>(
      [&] { return OnePart{static_cast<int>(rows.read())}; }, [&](int) { return x; }, w, [&](int) { return product; },
      n, k, band);
}
