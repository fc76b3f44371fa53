// Multiplies and scatters in one kernel. Tiles for other ranks come first, and each is pushed when it is finished. Then
// come this rank's own, and those of the other ranks are added to them. See common/team/gemm_scatter.cuh. Blocks wait
// for tiles of all blocks of the peers, so all must run at once.
#pragma once

#include "common/team/gemm_block.cuh"
#include "common/team/gemm_scatter.cuh"

/// grid: blocks that run at once, a multiple of the cluster; block, cluster and dynamic shared memory as its manifest says. The maps of x and y
/// have the ranks outermost, of which y has one. `counts`: the rows of each rank; null where all have as many as this one.
template <typename T, int World, int tile_m, int tile_n, int stages, int cluster_m, int cluster_n>
__global__ void __launch_bounds__(kiln::gemm::WgmmaTiling<T, T, kiln::gemm::Layout::nt, tile_m, tile_n, stages,
                                                          cluster_m, cluster_n, 1, false, false, true>::threads,
                                  1)
    gemm_reduce_scatter_fused(const __grid_constant__ kiln::tensor_map x_map,
                              const __grid_constant__ kiln::tensor_map w_map,
                              const __grid_constant__ kiln::tensor_map y_map, T* y, const int* counts,
                              kiln::axis_length length, long long n, long long k, long long part_stride, int most_rows,
                              int chunk_rows, int band, const __grid_constant__ kiln::team::Peers pushed,
                              const __grid_constant__ kiln::team::Team team) {
  using namespace kiln;
  using namespace kiln::gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  using Tiles = WgmmaTiling<T, T, Layout::nt, tile_m, tile_n, stages, cluster_m, cluster_n, 1, false, false, true>;
  using Shared = team::GatherLayout<Tiles>;
  constexpr int done_barrier = 6, done_threads = 64 + Tiles::consumers * warpgroup;
  char* const shared = dynamic_shared();
  const Ring<Tiles> ring{shared_address(shared), shared_address(shared) + Shared::barriers};
  auto* const arrived = reinterpret_cast<team::ArrivalStorage*>(shared + Shared::arrivals);
  const int block = Tiles::shares == 1 ? 0 : static_cast<int>(cluster_block_rank());
  const int warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);  // seen to be the same in all lanes
  if (warp == 0) {
    ring.template make_barriers<0, stages>();
  } else if (warp == 1 && elect_one()) {
    arrived->open<1>();
    prefetch_tensormap(&x_map);
    prefetch_tensormap(&w_map);
  }
  if constexpr (Tiles::shares > 1) cluster_arrive_relaxed();
  team::Epoch epoch(team, arrived->epoch);
  if (threadIdx.x == 0) arrived->failed = epoch.failed() ? 2 : 0;
  const int most = static_cast<int>(min(part_stride, static_cast<long long>(most_rows)));
  const team::PartRows rows = {counts, team.rank, length.read(), most};
  const team::ScatterSchedule<Tiles, World> schedule(rows, n, k, band);
  const team::Arrivals<World> arrivals(epoch, team, arrived, chunk_rows);
  const int tiles_n = static_cast<int>((n + tile_n - 1) / tile_n);
  const team::ScatteredTiles<T, Tiles, World> parts = {
      team, pushed, epoch, arrivals, arrived, rows, chunk_rows, tiles_n, (most_rows + tile_m - 1) / tile_m * tiles_n};
  WgmmaWork work = {};
  if (schedule.first() < schedule.count()) work = schedule.at(schedule.first());
  const int x_box = Tiles::X::rows_of_box(most_rows);
  if constexpr (Tiles::shares > 1) cluster_wait();  // a first copy goes to all blocks of the cluster
  __syncthreads();
  if (warp == 0) begin_copies(&x_map, &w_map, ring, work, block, x_box);
  __syncwarp();
  launch_dependents();

  const int of_block =
      __shfl_sync(full_warp, threadIdx.x / warpgroup, 0);  // not of `warp`: ptxas would ignore setmaxnreg
  team::ScatteredTiles<T, Tiles, World>::take_registers(of_block == 0);
  if (of_block == 0) {
    if (warp == 0) {
      gemm::produce(&x_map, &w_map, ring, schedule, work, block, x_box, parts);
      named_barrier_sync(done_barrier, done_threads);
      mbarrier_wait(&arrived->counted);  // each launch hears from all
      if (elect_one()) epoch.end_by_one(*static_cast<volatile int*>(&arrived->failed) != 0);
    } else if (warp == 1) {
      if (blockIdx.x == 0 && arrived->failed == 0 && elect_one()) {
        for (int step = 1; step < World; ++step) {
          const int peer = team::following<World>(team.rank, step);
          epoch.send(peer, team::rows_flag, rows.of(peer));
        }
      }
      __syncwarp();
      named_barrier_arrive(done_barrier, done_threads);
    } else if (warp == 2) {
      if (elect_one()) arrivals.template count<1>();
    }
    return;
  }
  const int consumer = of_block - 1, first = consumer * Tiles::row_blocks * wgmma_rows;
  WgmmaStaging staging = {shared, shared + Ring<Tiles>::bytes + consumer * Piece<Tiles>::staging_bytes, 0};
  const auto scales = [](const WgmmaWork&) { return NoScales{}; };
  const auto store = [&](WgmmaSums<Tiles>& sums, const WgmmaWork& of_tile) {
    if (of_tile.plane != team.rank) return;
    const bool failed = *static_cast<volatile int*>(&arrived->failed) != 0;
    const AlignedEpilogue<Plain> ending = {y,
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
                                           of_tile.rows,
                                           n};
    store_tile<Tiles, true>(sums, of_tile, first, staging, {&y_map, 0, 0, of_tile.rows < length.bound}, ending);
  };
  consume<Tiles>(ring, schedule, consumer, first, work, scales, parts, store);
  parts.settle();
  tma_store_wait_read<0>();
  named_barrier_arrive(done_barrier, done_threads);
}
