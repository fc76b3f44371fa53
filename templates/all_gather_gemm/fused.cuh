// Multiplies rows while they arrive: this rank's own first, then those of its peers chunk by chunk. common/team/gemm_block.cuh says how.
#pragma once

#include "common/team/gemm_block.cuh"

/// grid: blocks that run at once, a multiple of the cluster; block, cluster and dynamic shared memory as its manifest says. The maps of rows and
/// of y have the ranks outermost, that of x has one. moved: pieces in a run of the thread that pushes; below 0, warps move rows, and push them in
/// one of -moved blocks.
template <typename T, int World, int tile_m, int tile_n, int stages, int cluster_m, int cluster_n, bool swap,
          bool pingpong, int moved = 0>
__global__ void __launch_bounds__(kiln::gemm::WgmmaTiling<T, T, kiln::gemm::Layout::nt, tile_m, tile_n, stages,
                                                          cluster_m, cluster_n, 1, swap, pingpong, true>::threads,
                                  1)
    all_gather_gemm_fused(const __grid_constant__ kiln::tensor_map x_map,
                          const __grid_constant__ kiln::tensor_map first_half_map,
                          const __grid_constant__ kiln::tensor_map second_half_map,
                          const __grid_constant__ kiln::tensor_map w_map,
                          const __grid_constant__ kiln::tensor_map y_map, const T* x, T* gathered, T* y,
                          kiln::axis_length rows, long long n, long long k, long long rank_stride, int most_rows,
                          int chunk_rows, int piece_bytes, int band, const __grid_constant__ kiln::team::Peers pushed,
                          const __grid_constant__ kiln::team::Team team) {
  using namespace kiln::gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  using Tiles = WgmmaTiling<T, T, Layout::nt, tile_m, tile_n, stages, cluster_m, cluster_n, 1, swap, pingpong, true>;
  const int row_words = static_cast<int>(k * static_cast<long long>(sizeof(T)) / 16);
  const kiln::team::RowExchange exchange = {reinterpret_cast<const unsigned char*>(x),
                                            reinterpret_cast<unsigned char*>(gathered), rank_stride * row_words * 16,
                                            piece_bytes};
  const auto store = [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first, WgmmaStaging& staging,
                         bool failed) {
    const AlignedEpilogue<Plain> ending = {y + work.plane * rank_stride * n,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           n,
                                           0,
                                           0,
                                           0,
                                           failed ? __uint_as_float(0x7fffffffu) : 1.0f,
                                           work.rows,
                                           n};
    store_tile<Tiles, true>(sums, work, first, staging, {&y_map, 0, work.plane, work.rows < rank_stride}, ending);
  };
  kiln::team::gather_block<Tiles, World, (moved > 0 ? moved : 0), (moved < 0 ? -moved : 0)>(
      {&x_map, &first_half_map, &w_map}, {&x_map, &second_half_map, &w_map}, exchange,
      {pushed, row_words, most_rows, chunk_rows}, team, rows,
      static_cast<int>(min(rank_stride, static_cast<long long>(most_rows))), n, k, band, store);
}
