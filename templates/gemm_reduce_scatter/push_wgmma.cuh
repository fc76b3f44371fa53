// The product by wgmma, of which the rows for each rank are a plane: common/gemm/wgmma_block.cuh says how.
#pragma once

#include "common/team/gemm_schedule.cuh"
#include "scatter.cuh"

/// grid: blocks that run at once, a multiple of the cluster; block, cluster and dynamic shared memory as push_wgmma.toml says. The maps of
/// x and of the products have the ranks outermost.
template <typename T, int World, int tile_m, int tile_n, int stages, int cluster_m, int cluster_n, bool swap,
          bool pingpong>
__global__ void __launch_bounds__(kiln::gemm::WgmmaTiling<T, T, kiln::gemm::Layout::nt, tile_m, tile_n, stages,
                                                          cluster_m, cluster_n, 1, swap, pingpong, true>::threads,
                                  1)
    gemm_reduce_scatter_wgmma(const __grid_constant__ kiln::tensor_map x_map,
                              const __grid_constant__ kiln::tensor_map w_map,
                              const __grid_constant__ kiln::tensor_map products_map, T* products, const int* counts,
                              kiln::axis_length rows, long long n, long long k, long long part_stride, int rank,
                              int most_rows, int band) {
  using namespace kiln::gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  using Tiles = WgmmaTiling<T, T, Layout::nt, tile_m, tile_n, stages, cluster_m, cluster_n, 1, swap, pingpong, true>;
  const auto make_schedule = [&] {
    kiln::wait_for_predecessor();  // for the counts
    const int most = static_cast<int>(min(part_stride, static_cast<long long>(most_rows)));
    return kiln::team::PartsSchedule<Tiles, World>({counts, rank, rows.read(), most}, n, k, band);
  };
  const auto scales = [](const WgmmaWork&) { return NoScales{}; };
  const auto store = [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first, WgmmaStaging& staging) {
    const long long first_row = static_cast<long long>(work.plane) * most_rows;
    const AlignedEpilogue<Plain> ending = {
        products + first_row * n, nullptr, nullptr, nullptr, nullptr, nullptr, n, 0, 0, 0, 1.0f, work.rows, n};
    store_tile<Tiles, true>(sums, work, first, staging, {&products_map, 0, work.plane, false}, ending);
  };
  wgmma_block<Tiles>(&x_map, &w_map, most_rows, make_schedule, scales, WholeTiles(), store);
}
