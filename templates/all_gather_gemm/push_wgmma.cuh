// The product after the rows of all ranks were gathered, by wgmma: common/gemm/wgmma_block.cuh says how.
#pragma once

#include "common/team/gemm_schedule.cuh"
#include "gather.cuh"

/// grid: blocks that run at once, a multiple of the cluster; block, cluster and dynamic shared memory as push_wgmma.toml says. The maps of
/// rows and of y have the ranks outermost; gathered_map is used if there is `gathered`, else parts_map.
template <typename T, int World, int tile_m, int tile_n, int stages, int cluster_m, int cluster_n, bool swap,
          bool pingpong>
__global__ void __launch_bounds__(kiln::gemm::WgmmaTiling<T, T, kiln::gemm::Layout::nt, tile_m, tile_n, stages,
                                                          cluster_m, cluster_n, 1, swap, pingpong, true>::threads,
                                  1)
    all_gather_gemm_wgmma(const __grid_constant__ kiln::tensor_map gathered_map,
                          const __grid_constant__ kiln::tensor_map parts_map,
                          const __grid_constant__ kiln::tensor_map w_map,
                          const __grid_constant__ kiln::tensor_map y_map, const T* gathered, T* y, const int* counts,
                          kiln::axis_length rows, long long n, long long k, long long rank_stride, int rank,
                          int most_rows, int band) {
  using namespace kiln::gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  using Tiles = WgmmaTiling<T, T, Layout::nt, tile_m, tile_n, stages, cluster_m, cluster_n, 1, swap, pingpong, true>;
  const auto make_schedule = [&] {
    kiln::wait_for_predecessor();  // for the counts
    const int most = static_cast<int>(min(rank_stride, static_cast<long long>(most_rows)));
    return kiln::team::PartsSchedule<Tiles, World>({counts, rank, rows.read(), most}, n, k, band);
  };
  const auto scales = [](const WgmmaWork&) { return NoScales{}; };
  const auto store = [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first, WgmmaStaging& staging) {
    const AlignedEpilogue<Plain> ending = {
        y + work.plane * rank_stride * n, nullptr, nullptr, nullptr, nullptr, nullptr, n, 0, 0, 0, 1.0f, work.rows, n};
    store_tile<Tiles, true>(sums, work, first, staging, {&y_map, 0, work.plane, work.rows < rank_stride}, ending);
  };
  wgmma_block<Tiles>(gathered != nullptr ? &gathered_map : &parts_map, &w_map, most_rows, make_schedule, scales,
                     WholeTiles(), store);
}
