// gemm_batched on the tensor cores of sm_90a by wgmma: common/gemm/wgmma_block.cuh says how. The blocks that run at
// once take the tiles of all products in turns, product by product. The maps of x, w and y have the products outermost.
#pragma once

#include "common/gemm/batch.cuh"
#include "common/gemm/wgmma_block.cuh"
#include "common/length.cuh"

/// grid: blocks that run at once, a multiple of the cluster; block, cluster and dynamic shared memory as wgmma.toml says.
/// `y_map` is used if `stored` is 0; else that many elements of y are stored at once. Strides in elements.
template <typename T, typename U, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int stages,
          int cluster_m, int cluster_n, bool swap, bool pingpong, int stored>
__global__ void __launch_bounds__(kiln::gemm::WgmmaTiling<T, U, layout, tile_m, tile_n, stages, cluster_m, cluster_n, 1,
                                                          swap, pingpong, true, true>::threads,
                                  1)
    gemm_batched_wgmma(const __grid_constant__ kiln::tensor_map x_map, const __grid_constant__ kiln::tensor_map w_map,
                       const __grid_constant__ kiln::tensor_map y_map, typename Config::out* y,
                       const typename Config::out* bias, const typename Config::out* residual, const float* x_scale,
                       const float* w_scale, const float* y_scale, kiln::axis_length rows, long long n, long long k,
                       long long y_stride, long long residual_stride, long long x_scale_stride,
                       long long w_scale_stride, long long x_scale_k_stride, long long w_scale_k_stride,
                       long long y_batch_stride, long long bias_batch_stride, long long residual_batch_stride,
                       long long x_scale_batch_stride, long long w_scale_batch_stride, float scale, int batch,
                       int group) {
  using namespace kiln::gemm;
  using Tiles = WgmmaTiling<T, U, layout, tile_m, tile_n, stages, cluster_m, cluster_n, 1, swap, pingpong, true, true>;
  using Epilogue = epilogue<Config, stored == 0 ? 16 / sizeof(typename Config::out) : stored>;
  const auto make_schedule = [&] { return WgmmaSchedule<Tiles>(rows.read(), n, k, group, false, batch); };
  const auto ending_of = [&](const WgmmaWork& work) {
    return epilogue_of(
        Epilogue{y, bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride,
                 w_scale_stride, scale, work.rows, n},
        {0, 0, y_batch_stride, bias_batch_stride, residual_batch_stride, x_scale_batch_stride, w_scale_batch_stride},
        work.plane);
  };
  const auto scales = [&](const WgmmaWork& work) {
    if constexpr (Config::scaling == Scaling::block) {
      const Epilogue ending = ending_of(work);
      return StageScales<Tiles>{ending.x_scale, ending.w_scale,   x_scale_stride, x_scale_k_stride,
                                w_scale_stride, w_scale_k_stride, work.rows,      n};
    } else {
      return NoScales{};
    }
  };
  const auto store = [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first, WgmmaStaging& staging) {
    store_tile<Tiles, stored == 0>(sums, work, first, staging, {&y_map, 0, work.plane, work.rows < rows.bound},
                                   ending_of(work));
  };
  wgmma_block<Tiles>(&x_map, &w_map, rows.bound, make_schedule, scales, WholeTiles(), store);
}
