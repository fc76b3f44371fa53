// The product by mma.sync, a tile a block.
#pragma once

#include "common/team/gemm_mma.cuh"
#include "scatter.cuh"

/// grid (tiles of most_rows rows * tiles of n, ranks), block (warps * 32), dynamic shared memory as push_mma.toml says.
template <typename T, int tile_m, int tile_n, int tile_k, int warps, int stages>
__global__ void __launch_bounds__(warps * 32, 1)
    gemm_reduce_scatter_mma(const T* x, const T* w, T* products, const int* counts, kiln::axis_length rows, long long n,
                            long long k, long long part_stride, int rank, int most_rows, int band) {
  const int most = static_cast<int>(min(part_stride, static_cast<long long>(most_rows)));
  kiln::team::multiply_part_tile<T, tile_m, tile_n, tile_k, warps, stages>(
      [&] {
        return kiln::team::PartRows{counts, rank, rows.read(), most};
      },
      [&](int plane) { return x + plane * part_stride * k; }, w,
      [&](int plane) { return products + static_cast<long long>(plane) * most_rows * n; }, n, k, band);
}
