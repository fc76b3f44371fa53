// gemm on the tensor cores of sm_90a by wgmma: common/gemm/wgmma_tile.cuh and wgmma_store.cuh say how a tile is
// multiplied and stored.
//
// As many blocks as run at once take tiles in turns. In each, one thread of the first warpgroup copies stages of x and
// w to a ring, tile after tile, and the other warpgroups multiply; so the copies for the next tile go on while this one
// is stored.
//
// Few tiles are shared by several blocks, each with a part of k: those of a cluster add their sums in it (cluster_k),
// or they go to a workspace (`split`) and gemm_reduce of mma.cuh adds them. Those of a last round that leaves blocks idle
// can be shared by all (`tail`): parts of k again, which gemm_wgmma_tail adds. All in a fixed order.
#pragma once

#include "common/gemm/wgmma_block.cuh"
#include "common/gemm/wgmma_fragments.cuh"
#include "common/length.cuh"
#include "mma.cuh"

/// grid: blocks that run at once, a multiple of the cluster (with cluster_k: a cluster a tile); block, cluster and
/// dynamic shared memory as wgmma.toml says. `y_map` is used if `stored` is 0; else that many elements of y are stored
/// at once. Of the arguments after it, those up to `partial`, which is [splits, m, round_up(n, 8)] and takes the sums
/// when `split`, and the strides are the epilogue's. `partial` is [2 * blocks of the grid, tile_m * tile_n] if
/// `tail`.
template <typename T, typename U, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int stages,
          int cluster_m, int cluster_n, int cluster_k, bool swap, bool pingpong, int stored, bool split, bool tail>
__global__ void __launch_bounds__(kiln::gemm::WgmmaTiling<T, U, layout, tile_m, tile_n, stages, cluster_m, cluster_n,
                                                          cluster_k, swap, pingpong>::threads,
                                  1)
    gemm_wgmma(const __grid_constant__ kiln::tensor_map x_map, const __grid_constant__ kiln::tensor_map w_map,
               const __grid_constant__ kiln::tensor_map y_map, typename Config::out* y,
               const typename Config::out* bias, const typename Config::out* residual, const float* x_scale,
               const float* w_scale, const float* y_scale, float* partial, kiln::axis_length rows, long long n,
               long long k, long long y_stride, long long residual_stride, long long x_scale_stride,
               long long w_scale_stride, long long x_scale_k_stride, long long w_scale_k_stride, float scale, int group,
               int by_columns, int splits) {
  using namespace kiln::gemm;
  using Tiles = WgmmaTiling<T, U, layout, tile_m, tile_n, stages, cluster_m, cluster_n, cluster_k, swap, pingpong>;
  using Epilogue = epilogue<Config, stored == 0 ? 16 / sizeof(typename Config::out) : stored>;
  const auto make_schedule = [&] {
    WgmmaSchedule<Tiles> schedule(rows.read(), n, k, splits, group, by_columns != 0);
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
  const auto store = [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first, WgmmaStaging& staging) {
    if constexpr (split) {
      const long long stride = partial_stride(n);
      const PartialSums ending = {partial + work.split * stride * work.rows, stride, work.rows, n};
      store_directly<Tiles>(sums, staging.pieces, work.row, work.column, first, ending);
    } else {
      if (tail && work.slot >= 0) {
        SumsByFragment<Tiles>::store(partial, work.slot, first, sums);
        return;
      }
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
    }
  };
  wgmma_block<Tiles>(&x_map, &w_map, make_schedule, scales, store);
}

/// The end of the tiles that gemm_wgmma of the same parameters shares in its last round: adds the parts of each in the
/// order of k, as `partial` has them. `clusters` is how many that pass has. Blocks take pieces in turns: grid is any
/// number of them, block (128).
template <typename T, typename Config, int tile_m, int tile_n, int cluster_m, int cluster_n, bool swap, int alignment>
__global__ void __launch_bounds__(kiln::gemm::warpgroup, 5)
    gemm_wgmma_tail(const float* partial, typename Config::out* y, const typename Config::out* bias,
                    const typename Config::out* residual, const float* x_scale, const float* w_scale,
                    const float* y_scale, kiln::axis_length rows, long long n, long long k, long long y_stride,
                    long long residual_stride, long long x_scale_stride, long long w_scale_stride, float scale,
                    int group, int by_columns, int clusters) {
  using namespace kiln::gemm;
  using Tiles = WgmmaTiling<T, T, Layout::nt, tile_m, tile_n, 1, cluster_m, cluster_n, 1, swap, false>;
  using Fragments = SumsByFragment<Tiles>;
  using PieceTiling = typename Fragments::PieceTiling;
  __shared__ __align__(16) float staging[Fragments::piece_floats];
  const int m = rows.read();
  WgmmaSchedule<Tiles> schedule(m, n, k, 1, group, by_columns != 0);
  schedule.share_tail(clusters);
  kiln::wait_for_predecessor();
  kiln::launch_dependents();

  const epilogue<Config, alignment> ending = {
      y,     bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
      scale, m,    n};
  const int count = schedule.shared() * Tiles::shares * Fragments::pieces;
#pragma unroll 1
  for (int i = static_cast<int>(blockIdx.x); i < count; i += static_cast<int>(gridDim.x)) {
    const int piece = i % Fragments::pieces, tile = i / Fragments::pieces;
    const WgmmaWork shared = schedule.shared_at(tile / Tiles::shares, tile % Tiles::shares);
    const int row = shared.row + Fragments::row_of(piece), column = shared.column + Fragments::column_of(piece);
    if (row >= m || column >= n) continue;
    WgmmaSums<PieceTiling> sums;
    Fragments::add(sums, partial, shared.slot, schedule.parts(), piece);
    __syncthreads();  // all have read the piece before
    SumsPiece<PieceTiling>::put(staging, sums[0]);
    __syncthreads();
    store_piece<PieceTiling>(staging, row, column, ending);
  }
}
