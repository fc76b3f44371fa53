// gemm_grouped on the tensor cores of sm_90a by wgmma: common/gemm/wgmma_block.cuh says how. The blocks that run at
// once take the tiles of all groups in turns, group by group. Tiles that end within a group are stored by TMA. In a
// group's last tiles, rows past its end are multiplied without effect, whatever they hold, and left out. These tiles
// are copied from before their own rows as the last ones of x must be, for what there is L2 has.
#pragma once

#include "common/gemm/groups.cuh"
#include "common/gemm/wgmma_block.cuh"
#include "common/length.cuh"

namespace kiln::gemm {

/// The tiles of all groups.
template <typename Tiles>
class GroupedSchedule {
 public:
  __device__ __forceinline__ GroupedSchedule(const int* offsets, int groups, int m, long long n, long long k, int band)
      : offsets_(offsets),
        groups_(groups),
        m_(m),
        columns_(static_cast<int>(n)),
        tiles_n_(static_cast<int>((n + Tiles::tile_n - 1) / Tiles::tile_n)),
        k_tiles_(static_cast<int>((k + Tiles::tile_k - 1) / Tiles::tile_k)),
        band_(band),
        count_(count_group_tiles(offsets, groups, m, Tiles::tile_m, tiles_n_)) {}

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int step() const { return static_cast<int>(gridDim.x); }
  __device__ __forceinline__ int count() const { return count_; }

  __device__ __forceinline__ WgmmaWork at(int index) const {
    const GroupTile of = find_group_tile(offsets_, groups_, m_, Tiles::tile_m, tiles_n_, index);
    const int rows = of.end_row - of.first_row;
    const TileIndex tile = tile_in_bands(of.tile, (rows + Tiles::tile_m - 1) / Tiles::tile_m, tiles_n_, band_);
    return copied_inside<Tiles>(
        {tile.m * Tiles::tile_m, tile.n * Tiles::tile_n, 0, k_tiles_, of.first_row, rows, of.group}, columns_);
  }

 private:
  const int* offsets_;
  int groups_, m_, columns_;
  int tiles_n_, k_tiles_, band_, count_;
};

}  // namespace kiln::gemm

/// grid: blocks that run at once; block and dynamic shared memory as wgmma.toml says. `y_map` is used if `stored` is 0;
/// else that many elements of y are stored at once. w_map has the groups outermost. Strides in elements.
template <typename T, typename U, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int stages,
          bool swap, bool pingpong, int stored>
__global__ void __launch_bounds__(
    kiln::gemm::WgmmaTiling<T, U, layout, tile_m, tile_n, stages, 1, 1, 1, swap, pingpong, false, true>::threads, 1)
    gemm_grouped_wgmma(const __grid_constant__ kiln::tensor_map x_map, const __grid_constant__ kiln::tensor_map w_map,
                       const __grid_constant__ kiln::tensor_map y_map, const int* offsets, typename Config::out* y,
                       const typename Config::out* bias, const typename Config::out* residual, const float* x_scale,
                       const float* w_scale, const float* y_scale, kiln::axis_length rows, long long n, long long k,
                       int groups, long long y_stride, long long residual_stride, long long x_scale_stride,
                       long long w_scale_stride, long long x_scale_k_stride, long long w_scale_k_stride,
                       long long bias_group_stride, long long w_scale_group_stride, float scale, int band) {
  using namespace kiln::gemm;
  using Tiles = WgmmaTiling<T, U, layout, tile_m, tile_n, stages, 1, 1, 1, swap, pingpong, false, true>;
  using Epilogue = epilogue<Config, stored == 0 ? 16 / sizeof(typename Config::out) : stored>;
  const auto make_schedule = [&] {
    kiln::wait_for_predecessor();  // for the offsets
    return GroupedSchedule<Tiles>(offsets, groups, rows.read(), n, k, band);
  };
  const auto ending_of = [&](const WgmmaWork& work) {
    const Epilogue all = {
        y,     bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
        scale, 0,    n};
    return epilogue_of_group(all, {0, bias_group_stride, w_scale_group_stride},
                             {work.plane, work.first_row, work.first_row + work.rows, 0});
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
    store_tile<Tiles, stored == 0>(sums, work, first, staging, {&y_map, work.first_row, 0, true}, ending_of(work));
  };
  wgmma_block<Tiles>(&x_map, &w_map, rows.bound, make_schedule, scales, WholeTiles(), store);
}
