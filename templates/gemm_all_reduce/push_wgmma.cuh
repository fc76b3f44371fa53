// The product by wgmma, to a workspace: common/gemm/wgmma_block.cuh says how. It is exchanged as all_reduce does.
#pragma once

#include "common/gemm/wgmma_block.cuh"
#include "common/length.cuh"
#include "common/team/all_reduce.cuh"
#include "common/team/two_shot.cuh"

/// grid: blocks that run at once, a multiple of the cluster (with cluster_k: a cluster a tile). Block, cluster and
/// dynamic shared memory are as wgmma.part.toml says. `product` has room for all rows of the bucket, of n elements.
template <typename T, int tile_m, int tile_n, int stages, int cluster_m, int cluster_n, int cluster_k, bool swap,
          bool pingpong>
__global__ void __launch_bounds__(kiln::gemm::WgmmaTiling<T, T, kiln::gemm::Layout::nt, tile_m, tile_n, stages,
                                                          cluster_m, cluster_n, cluster_k, swap, pingpong>::threads,
                                  1)
    gemm_all_reduce_wgmma(const __grid_constant__ kiln::tensor_map x_map,
                          const __grid_constant__ kiln::tensor_map w_map,
                          const __grid_constant__ kiln::tensor_map product_map, T* product, kiln::axis_length rows,
                          long long n, long long k, int band) {
  using namespace kiln::gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  using Tiles = WgmmaTiling<T, T, Layout::nt, tile_m, tile_n, stages, cluster_m, cluster_n, cluster_k, swap, pingpong>;
  const auto make_schedule = [&] { return WgmmaSchedule<Tiles>(rows.read(), n, k, band, false); };
  const auto scales = [](const WgmmaWork&) { return NoScales{}; };
  const auto store = [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first, WgmmaStaging& staging) {
    const AlignedEpilogue<Plain> ending = {product, nullptr, nullptr, nullptr, nullptr,   nullptr, n,
                                           0,       0,       0,       1.0f,    work.rows, n};
    store_tile<Tiles, true>(sums, work, first, staging, {&product_map, 0, 0, false}, ending);
  };
  wgmma_block<Tiles>(&x_map, &w_map, rows.bound, make_schedule, scales, WholeTiles(), store);
}
