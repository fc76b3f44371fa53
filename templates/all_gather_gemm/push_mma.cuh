// The product after the rows of all ranks were gathered, by mma.sync, a tile of y a block.
#pragma once

#include "common/team/gemm_mma.cuh"
#include "gather.cuh"

/// grid (tiles of most_rows rows * tiles of n, ranks), block (warps * 32), dynamic shared memory as push_mma.toml says.
template <typename T, int tile_m, int tile_n, int tile_k, int warps, int stages>
__global__ void __launch_bounds__(warps * 32, 1)
    all_gather_gemm_mma(const T* gathered, const T* parts, const T* w, T* y, const int* counts, kiln::axis_length rows,
                        long long n, long long k, long long rank_stride, int rank, int most_rows, int band) {
  const int most = static_cast<int>(min(rank_stride, static_cast<long long>(most_rows)));
  kiln::team::multiply_part_tile<T, tile_m, tile_n, tile_k, warps, stages>(
      [&] {
        return kiln::team::PartRows{counts, rank, rows.read(), most};
      },
      [&](int plane) {
        return gathered != nullptr ? gathered + plane * rank_stride * k
                                   : parts + static_cast<long long>(plane) * most_rows * k;
      },
      w, [&](int plane) { return y + plane * rank_stride * n; }, n, k, band);
}
