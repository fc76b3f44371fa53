// Multiplies and adds up over the ranks in one kernel. Each block sends the words of its tile to all peers, receives
// those of the same block of each, and stores the sums. See common/team/gemm_reduce.cuh for how words travel.
//
// A tile of few bytes may travel as packets (common/team/gemm_packets.cuh), which no flag follows.
//
// A block sends before it waits, and waits for blocks of its own number alone. Devices start blocks of lower numbers
// first, so the lowest that has not ended on some rank runs on all of them. So the launch need not be cooperative.
#pragma once

#include "common/length.cuh"
#include "common/team/gemm_packets.cuh"

/// grid: the bucket's tiles times the splits of k; block, cluster and dynamic shared memory as its manifest says. `tiles_m`: of the bucket,
/// along m. signed_splits: below 0, tiles travel as packets.
template <typename T, int World, int tile_m, int tile_n, int stages, int signed_splits, bool swap>
__global__ void __launch_bounds__(
    kiln::gemm::WgmmaTiling<T, T, kiln::gemm::Layout::nt, tile_m, tile_n, stages, 1, 1,
                            (signed_splits < 0 ? -signed_splits : signed_splits), swap, false>::threads,
    1) gemm_all_reduce_fused(const __grid_constant__ kiln::tensor_map x_map,
                             const __grid_constant__ kiln::tensor_map w_map, T* y, kiln::axis_length length,
                             long long n, long long k, int tiles_m, const __grid_constant__ kiln::team::Peers pushed,
                             const __grid_constant__ kiln::team::Team team) {
  using namespace kiln;
  using namespace kiln::gemm;
  constexpr bool packets = signed_splits < 0;
  constexpr int splits = packets ? -signed_splits : signed_splits;
  using Tiles = WgmmaTiling<T, T, Layout::nt, tile_m, tile_n, stages, 1, 1, splits, swap, false>;
  using Shared = team::ReduceLayout<Tiles>;
  using Words =
      typename gemm::detail::choose<(splits > 1), team::ClusterWords<T, Tiles>, team::FragmentWords<T, Tiles>>::type;
  constexpr int peers = World - 1, loading_warps = warpgroup / 32, copying_warp = 1, sending_warp = 2;
  constexpr int pushed_barrier = 5, done_barrier = 6, barrier_threads = 32 + Tiles::consumers * warpgroup;
  char* const shared = dynamic_shared();
  const Ring<Tiles> ring{shared_address(shared), shared_address(shared) + Shared::barriers};
  auto* const arrived = reinterpret_cast<typename Shared::storage*>(shared + Shared::arrivals);
  const int warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);  // seen to be the same in all lanes
  if (warp == copying_warp) {
    ring.template make_barriers<0, stages>();
  } else if (warp == sending_warp && elect_one()) {
    prefetch_tensormap(&x_map);
    prefetch_tensormap(&w_map);
  }
  const int rows = length.read();
  const WgmmaWork work = team::tile_of_block<Tiles>(tiles_m, rows, n, k);
  const bool exists = work.row < rows;
  const int x_box = Tiles::X::rows_of_box(length.bound), begun = min(stages, work.k_tiles);
  if (warp == copying_warp) {  // while another warp asks for the epoch
    wait_for_predecessor();
    team::copy_stages<Tiles>(&x_map, &w_map, ring, work, x_box, 0, begun);
  }
  if (threadIdx.x == 0) arrived->rows_of[team.rank] = rows;
  team::Epoch epoch(team, arrived->epoch);
  launch_dependents();

  const int index = static_cast<int>(blockIdx.x);  // of the block's flags
  const int consumer = warp / loading_warps - 1, first = consumer * Tiles::row_blocks * wgmma_rows;
  Words held = {first};
  if constexpr (packets && splits > 1)
    held.columns = static_cast<int>(n) - work.column;  // of tiles that only peers have too
  typename Words::Word own[Words::count] = {};
  const team::ExchangedTile<Words, World> tile = {
      pushed, epoch.half(), team.rank, blockIdx.x / splits, gridDim.x / splits, tile_m * tile_n / Words::width};
  const unsigned number_of_epoch = arrived->epoch.epoch;  // read once
  const team::Packets all_packets = {team, number_of_epoch};
  const team::PacketTile<Words, World> in_packets = {all_packets, blockIdx.x / splits, tile_m * tile_n / Words::width};
  if (packets && index == 0 && warp == sending_warp && !epoch.failed()) {
    const int thread = static_cast<int>(threadIdx.x) % 32;
    if (thread < peers) all_packets.tell_rows(team::following<World>(team.rank, thread + 1), rows);
  }
  if (warp < loading_warps) {
    if (warp == copying_warp) team::copy_stages<Tiles>(&x_map, &w_map, ring, work, x_box, begun, work.k_tiles);
    if (splits > 1 && exists) {  // as held.take() does
      cluster_arrive_relaxed();
      cluster_wait();
    }
    if (!packets && warp == sending_warp) {
      const int thread = static_cast<int>(threadIdx.x) % 32;
      named_barrier_sync(pushed_barrier, barrier_threads);
      if (thread < peers && !epoch.failed()) epoch.send(team::following<World>(team.rank, thread + 1), index, rows);
      __syncwarp();
    }
  } else {
    const auto scales = [](const WgmmaWork&) { return NoScales{}; };
    consume<Tiles>(ring, team::OneWork{exists}, consumer, first, work, scales, WholeTiles(),
                   [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& of) { held.take(sums, of, n, shared, own); });
    if constexpr (packets) {
      if (exists && !epoch.failed()) in_packets.push(held, own);
    } else {
      if (exists && !epoch.failed()) tile.push(held, own);
      named_barrier_arrive(pushed_barrier, barrier_threads);
    }
  }
  if (splits > 1 && exists) cluster_arrive_relaxed();  // this block has read the others' sums

  bool came = epoch.await_all(peers, [&](int thread) {
    const int peer = team::following<World>(team.rank, thread + 1);
    return (arrived->rows_of[peer] = epoch.await(peer, packets ? 0 : index)) >= 0;
  });
  if constexpr (packets) {
    came = epoch.await_all(static_cast<int>(blockDim.x), [&](int thread) {
      if (thread < warpgroup) return true;
      int sent[World];
#pragma unroll
      for (int rank = 0; rank < World; ++rank) sent[rank] = arrived->rows_of[rank] - work.row;
      return in_packets.template add<T>(held, sent, own);
    });
  }
  if (warp >= loading_warps) {
    if (!packets && exists && came) {
      int sent[World];
#pragma unroll
      for (int rank = 0; rank < World; ++rank) sent[rank] = arrived->rows_of[rank] - work.row;
      tile.template add<T>(held, sent, own);
    }
    named_barrier_arrive(done_barrier, barrier_threads);
#pragma unroll
    for (int i = 0; i < Words::count; ++i) {
      if (exists) held.store(i, came ? own[i] : team::poisoned<typename Words::Word>(), work, y, n);
    }
  } else if (warp == 0) {
    named_barrier_sync(done_barrier, barrier_threads);
    if (elect_one()) epoch.end_by_one(epoch.failed());
  }
  if constexpr (splits > 1) {
    __syncwarp();
    if (exists) cluster_wait();
  }
}
