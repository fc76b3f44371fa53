// gemm on the tensor cores of sm_90a by wgmma: common/gemm/wgmma_tile.cuh and wgmma_store.cuh say how a tile is
// multiplied and stored.
//
// As many blocks as run at once take tiles in turns. In each, one thread of the first warpgroup copies stages of x and
// w to a ring, tile after tile. The other warpgroups multiply. So the copies for the next tile go on while this one is
// stored.
//
// Few tiles are shared by several blocks, each with a part of k: those of a cluster add their sums in it (cluster_k).
// Tiles of a last round that leaves blocks idle can be shared by all (`tail`), as parts of k again. Their sums go to a
// workspace. The block that has the first part adds them to its own. All in a fixed order.
#pragma once

#include "common/gemm/wgmma_block.cuh"
#include "common/length.cuh"

/// grid: blocks that run at once, a multiple of the cluster (with cluster_k: a cluster a tile). Block, cluster and
/// dynamic shared memory are as wgmma.toml says. `y_map` is used if `stored` is 0; else that many elements of y are
/// stored at once. `partial` and `raised`, which is zero before and after, are [blocks of the grid] of tiles and of
/// SharedTiles::flags, for `tail`. What is no length of these is the epilogue's.
template <typename T, typename U, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int stages,
          int cluster_m, int cluster_n, int cluster_k, bool swap, bool pingpong, int stored, bool tail>
__global__ void __launch_bounds__(kiln::gemm::WgmmaTiling<T, U, layout, tile_m, tile_n, stages, cluster_m, cluster_n,
                                                          cluster_k, swap, pingpong>::threads,
                                  1)
    gemm_wgmma(const __grid_constant__ kiln::tensor_map x_map, const __grid_constant__ kiln::tensor_map w_map,
               const __grid_constant__ kiln::tensor_map y_map, typename Config::out* y,
               const typename Config::out* bias, const typename Config::out* residual, const float* x_scale,
               const float* w_scale, const float* y_scale, float* partial, unsigned* raised, kiln::axis_length rows,
               long long n, long long k, long long y_stride, long long residual_stride, long long x_scale_stride,
               long long w_scale_stride, long long x_scale_k_stride, long long w_scale_k_stride, float scale, int group,
               int by_columns) {
  using namespace kiln::gemm;
  using Tiles = WgmmaTiling<T, U, layout, tile_m, tile_n, stages, cluster_m, cluster_n, cluster_k, swap, pingpong>;
  using Epilogue = epilogue<Config, stored == 0 ? 16 / sizeof(typename Config::out) : stored>;
  const auto make_schedule = [&] {
    WgmmaSchedule<Tiles> schedule(rows.read(), n, k, group, by_columns != 0);
    if constexpr (tail) schedule.share_tail(schedule.step());
    return schedule;
  };
  const auto scales = [&](const WgmmaWork& work) {
    if constexpr (Config::scaling == Scaling::block) {
      return StageScales<Tiles>{x_scale,        w_scale,          x_scale_stride, x_scale_k_stride,
                                w_scale_stride, w_scale_k_stride, work.rows,      n};
    } else {
      return NoScales{};
    }
  };
  const auto store = [&](WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first, WgmmaStaging& staging) {
    const Epilogue ending = {y,
                             bias,
                             residual,
                             x_scale,
                             w_scale,
                             y_scale,
                             y_stride,
                             residual_stride,
                             x_scale_stride,
                             w_scale_stride,
                             scale,
                             work.rows,
                             n};
    store_tile<Tiles, stored == 0>(sums, work, first, staging, {&y_map, 0, 0, work.rows < rows.bound}, ending);
  };
  if constexpr (tail) {
    wgmma_block<Tiles>(&x_map, &w_map, rows.bound, make_schedule, scales, SharedTiles<Tiles>{partial, raised}, store);
  } else {
    wgmma_block<Tiles>(&x_map, &w_map, rows.bound, make_schedule, scales, WholeTiles(), store);
  }
}
