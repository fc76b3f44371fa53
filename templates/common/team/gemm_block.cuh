// A block that multiplies the rows of all ranks while they arrive, by wgmma: common/gemm/wgmma_block.cuh says how a block multiplies.
//
// One thread of the first warpgroup copies stages, and waits for what it copies. This rank's rows come from x, those of
// other ranks from this rank's symmetric workspace. A thread of another of its warps pushes this rank's rows, and then
// keeps what arrived; or three other warps push and keep at the same time. The other warpgroups multiply.
#pragma once

#include "common/gemm/wgmma_block.cuh"
#include "common/team/gemm_push.cuh"
#include "common/team/gemm_schedule.cuh"
#include "common/team/gemm_warps.cuh"

namespace kiln::team {

/// Where rows are copied from: the maps have ranks outermost, that of x has one.
struct RowMaps {
  const tensor_map *x, *arrived, *w;
};

/// How a launch of this rank exchanges rows.
struct RowExchange {
  const unsigned char* x;
  unsigned char* gathered;   // may be null
  long long gathered_bytes;  // from one rank's rows there to the next's
  int piece_bytes;
};

/// The block's shared memory, after the ring.
template <typename Tiles>
struct GatherLayout {
  static constexpr int barriers = gemm::Ring<Tiles>::bytes + gemm::staging_bytes<Tiles>;
  static constexpr int arrivals = (barriers + gemm::Ring<Tiles>::barrier_bytes + 127) / 128 * 128;
  static constexpr int pieces = arrivals + 128;
  static_assert(sizeof(ArrivalStorage) <= 128);
};

/// Registers: what waits for flags and what pushes need more than what only copies. Warps that move rows need most.
template <typename Tiles, bool by_warps>
__device__ __forceinline__ void take_registers(bool produces) {
  static_assert(Tiles::consumers <= 2);
  constexpr bool many_sums = Tiles::row_blocks * Tiles::B::extent / 2 > 128;
  constexpr int of_producer = by_warps && !many_sums ? 72 : 56, of_consumer = (504 - of_producer) / 2;
  if constexpr (Tiles::consumers == 2) {
    if (produces) {
      setmaxnreg_dec<of_producer>();
    } else {
      setmaxnreg_inc<of_consumer>();
    }
  }
}

/// Copies the stages of all of the block's work. For one warp, of which one thread copies.
template <typename Tiles, int World, typename Schedule>
__device__ __forceinline__ void produce(const RowMaps& maps, const gemm::Ring<Tiles>& ring, const Schedule& schedule,
                                        int rank, const Arrivals<World>& arrivals, int block, int x_box) {
  const bool copies = elect_one();
  gemm::RingPosition<Tiles::stages> at;
#pragma unroll 1
  for (int index = schedule.first(); schedule.has(index); index += schedule.step()) {
    gemm::WgmmaWork work = schedule.at(index);
    const bool own = work.plane == rank;
    if (copies && !own && work.row < work.rows)
      arrivals.await(work.plane, work.row - work.x_back, min(work.row + Tiles::tile_m, work.rows));
    if (own) work.plane = 0;
    const tensor_map* const x_map = own ? maps.x : maps.arrived;
#pragma unroll 1
    for (int tile = 0; copies && tile < work.k_tiles; ++tile, at.advance()) {
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
      gemm::copy_stage(x_map, maps.w, ring, at.slot, work, tile, block, x_box);
    }
    __syncwarp();
  }
  if constexpr (Tiles::shares > 1) {
    for (int slot = 0; copies && slot < Tiles::stages; ++slot, at.advance())
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
  }
}

/// By one thread of the launch's first block.
template <int World>
__device__ __forceinline__ void tell_rows(const Epoch& epoch, const ArrivingRows& rows) {
  if (blockIdx.x != 0 || rows.shared->failed != 0) return;
#pragma unroll 1
  for (int step = 1; step < World; ++step) epoch.send(following<World>(rows.rank, step), rows_flag, rows.own);
}

/// What the thread that pushes does in a launch.
template <int World, int Run>
__device__ __forceinline__ void push_and_keep(const Pusher<World>& pusher, const RowExchange& exchange,
                                              const Arrivals<World>& arrivals, const ArrivingRows& rows,
                                              PiecePlaces places) {
  const int rank = pusher.team.rank;
  tell_rows<World>(pusher.epoch, rows);
  const auto kept = [&](int of) {
    return exchange.gathered == nullptr ? nullptr : exchange.gathered + of * exchange.gathered_bytes;
  };
  pusher.template push<Run>(exchange.x, rows.own, kept(rank), places, exchange.piece_bytes);
  if (exchange.gathered == nullptr || World == 1) return;
  rows.template longest_of_peers<World>();
#pragma unroll 1
  for (int step = 1; step < World; ++step) {
    const int peer = following<World>(rank, step);
    pusher.keep(peer, rows.of(peer), kept(peer), arrivals, places, exchange.piece_bytes);
  }
}

/// What a warp that moves rows does in a launch.
template <int World>
__device__ __forceinline__ void move_by_warp(const WarpMover<World>& mover, const RowExchange& exchange,
                                             const Arrivals<World>& arrivals, const ArrivingRows& rows, bool pushes) {
  if (pushes)
    mover.push(exchange.x, rows.own,
               exchange.gathered == nullptr ? nullptr : exchange.gathered + rows.rank * exchange.gathered_bytes);
  if constexpr (World > 1) {
    if (exchange.gathered != nullptr) mover.keep(rows, exchange.gathered, exchange.gathered_bytes, arrivals);
  }
}

/// A block of a launch. store(sums, work, first, staging, failed) stores a tile; NaN if `failed`. `Run`: as Pusher::push() has it. `Pushing`:
/// 0, or warps move rows, and push them in one of so many blocks.
template <typename Tiles, int World, int Run, int Pushing, typename Store>
__device__ __forceinline__ void gather_block(const RowMaps& first_half, const RowMaps& second_half,
                                             const RowExchange& exchange, const PushedParts& parts, const Team& team,
                                             const axis_length& length, int most, long long n, long long k, int band,
                                             Store store) {
  using namespace gemm;
  using Layout = GatherLayout<Tiles>;
  constexpr bool by_warps = Pushing > 0;
  constexpr int done_barrier = 6, done_threads = (by_warps ? 128 : 64) + Tiles::consumers * warpgroup;
  char* const shared = dynamic_shared();
  const Ring<Tiles> ring{shared_address(shared), shared_address(shared) + Layout::barriers};
  auto* const arrived = reinterpret_cast<ArrivalStorage*>(shared + Layout::arrivals);
  const int block = Tiles::shares == 1 ? 0 : static_cast<int>(cluster_block_rank());
  const int warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);  // seen to be the same in all lanes
  if (warp == 0) {
    ring.template make_barriers<0, Tiles::stages>();
  } else if (warp == 1 && elect_one()) {
    arrived->template open<Tiles::cluster>();
    mbarrier_init(shared_address(&arrived->copied[0]), 1);
    mbarrier_init(shared_address(&arrived->copied[1]), 1);
    fence_mbarrier_init();
    prefetch_tensormap(first_half.x);
    prefetch_tensormap(first_half.w);
  }
  if constexpr (Tiles::shares > 1) cluster_arrive_relaxed();
  Epoch epoch(team, arrived->epoch);
  if (threadIdx.x == 0) arrived->failed = epoch.failed() ? 2 : 0;
  const int rows = length.read();
  const RowMaps maps = epoch.half() == 0 ? first_half : second_half;
  const PartsSchedule<Tiles, World, ArrivingRows> schedule({arrived, team.rank, rows, most}, n, k, band);
  if constexpr (Tiles::shares > 1) cluster_wait();
  __syncthreads();
  launch_dependents();

  const int of_block =
      __shfl_sync(full_warp, threadIdx.x / warpgroup, 0);  // not of `warp`: ptxas would ignore setmaxnreg
  take_registers<Tiles, by_warps>(of_block == 0);
  if (of_block == 0) {
    const Arrivals<World> arrivals(epoch, team, arrived, parts.chunk_rows);
    if (warp == 0) {
      const int x_box = Tiles::X::rows_of_box(parts.most_rows);
      team::produce<Tiles, World>(maps, ring, schedule, team.rank, arrivals, block, x_box);
      named_barrier_sync(done_barrier, done_threads);
      if (elect_one()) epoch.end_by_one(*static_cast<volatile int*>(&arrived->failed) != 0);
    } else if (warp == 1 && !by_warps) {
      if (elect_one()) {
        const Pusher<World> pusher{team, parts, epoch, arrived};
        push_and_keep<World, Run>(pusher, exchange, arrivals, {arrived, team.rank, rows, most},
                                  {shared_address(shared) + Layout::pieces, shared_address(arrived->copied),
                                   static_cast<unsigned>(exchange.piece_bytes)});
      }
      __syncwarp();
      named_barrier_arrive(done_barrier, done_threads);
    } else if (warp == 2 || by_warps) {
      if (World > 1 && warp == 2 && block == 0 && elect_one())  // else nobody waits, and another block may have ended
        arrivals.template count<Tiles::cluster>();
      if constexpr (by_warps) {
        const ArrivingRows arriving = {arrived, team.rank, rows, most};
        if (warp == 1 && elect_one()) tell_rows<World>(epoch, arriving);
        __syncwarp();
        const WarpMover<World> mover = {team, parts, epoch};
        // Warp 2 keeps what arrives from the beginning on. Where nothing is kept, it pushes too.
        const bool is_free = warp != 2 || exchange.gathered == nullptr;
        move_by_warp(mover, exchange, arrivals, arriving, is_free && static_cast<int>(blockIdx.x) % Pushing == 0);
        __syncwarp();
        named_barrier_arrive(done_barrier, done_threads);
      }
    }
    return;
  }
  const int consumer = of_block - 1, first = Tiles::pingpong ? 0 : consumer * Tiles::row_blocks * wgmma_rows;
  WgmmaStaging staging = {shared, shared + Ring<Tiles>::bytes + consumer * Piece<Tiles>::staging_bytes, 0};
  WgmmaWork work = {};
  if (schedule.first() < schedule.count()) work = schedule.at(schedule.first());
  const auto store_one = [&](WgmmaSums<Tiles>& sums, const WgmmaWork& of_tile) {
    const int failed = *static_cast<volatile int*>(&arrived->failed);
    store(sums, of_tile, first, staging, failed > (of_tile.plane == team.rank ? 1 : 0));
  };
  const auto scales = [](const WgmmaWork&) { return NoScales{}; };
  consume<Tiles>(ring, schedule, consumer, first, work, scales, WholeTiles(), store_one);
  tma_store_wait_read<0>();
  named_barrier_arrive(done_barrier, done_threads);
}

}  // namespace kiln::team
