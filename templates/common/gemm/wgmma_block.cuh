// A block of a kernel that multiplies by wgmma: who copies, who multiplies, in which order.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/elect.cuh"
#include "common/gemm/tile_order.cuh"
#include "common/gemm/wgmma_promoted.cuh"
#include "common/gemm/wgmma_store.cuh"
#include "common/setmaxnreg.cuh"

namespace kiln::gemm {

/// A tile of one product, or a part of it along k, by its corner; k in stages.
struct WgmmaWork {
  int row, column, first_k, k_tiles, split;
  int first_row, rows;  // of x and y, that are the product's
  int plane;            // which product
  int slot = -1;        // for the sums of a part of a shared tile; none where the tile is whole
};

/// Which work a block has, in which order: that of its cluster, of which it takes the tile or part that its rank says.
///
/// All tiles are cut along k into `splits` equal parts, which are pieces of work of their own; or those of the last round
/// are shared (share_tail).
template <typename Tiles>
class WgmmaSchedule {
 public:
  /// `by_columns`: bands of tiles are columns, of `group` tiles, and not rows. `products`: planes, one after another.
  __device__ __forceinline__ WgmmaSchedule(int m, long long n, long long k, int splits, int group, bool by_columns,
                                           int products = 1)
      : rank_(Tiles::cluster == 1 ? 0 : static_cast<int>(cluster_block_rank())),
        splits_(splits),
        rows_(m),
        tiles_m_(ceil_div(ceil_div(m, Tiles::tile_m), Tiles::cluster_m)),
        tiles_n_(ceil_div(ceil_div(n, Tiles::tile_n), Tiles::cluster_n)),
        k_tiles_(ceil_div(k, Tiles::tile_k)),
        group_(group),
        by_columns_(by_columns),
        count_(tiles_m_ * tiles_n_ * products * splits) {}

  /// Of a product that has no splits: `clusters` take its tiles in turns. If the last round would leave enough of them
  /// idle, they help: each of its tiles is cut along k, the first part is for the cluster that would have had it all, and
  /// the idle ones take the others: one each, or where they are few, each the second parts of `run` tiles. Parts of one
  /// number begin at one place of k and are multiplied side by side, so that they find in L2 what others loaded.
  __device__ __forceinline__ void share_tail(int clusters) {
    const int tail = count_ % clusters, idle = clusters - tail;
    if (tail == 0) return;
    const int run = ceil_div(tail, idle);
    const int parts = run > 1 ? 2 : max(min(min(clusters / tail, most_parts), k_tiles_ / least_stages), 1);
    const int first_part =
        run > 1 ? ceil_div(static_cast<long long>(k_tiles_) * run, run + 1) : ceil_div(k_tiles_, parts);
    if (k_tiles_ - first_part < least_saving) return;
    shared_ = tail;
    clusters_ = clusters;
    parts_ = parts;
    run_ = run;
    first_part_ = first_part;
    whole_ = count_ - tail;
    const int helper = first() - tail;
    const int pieces = helper < 0 ? 1 : helper >= tail * (parts - 1) ? 0 : max(min(run, tail - helper % tail * run), 0);
    count_ = whole_ + pieces * clusters;
  }

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / Tiles::cluster; }
  __device__ __forceinline__ int step() const { return static_cast<int>(gridDim.x) / Tiles::cluster; }
  /// This cluster's work has the indices below it, from first() on by step().
  __device__ __forceinline__ int count() const { return count_; }

  __device__ __forceinline__ WgmmaWork at(int index) const {
    if (parts_ > 0 && index >= whole_) return of_last_round(index - whole_);
    const int split = splits_ == 1 ? 0 : index % splits_, tile = splits_ == 1 ? index : index / splits_;
    const int part = split * Tiles::cluster_k + (Tiles::cluster_k == 1 ? 0 : rank_);
    const int first_k = share(part), end_k = share(part + 1);
    WgmmaWork work = tile_at(tile, rank_);
    work.first_k = first_k, work.k_tiles = end_k - first_k, work.split = split;
    return work;
  }

  /// The tiles that are shared, by their number among these; and of each the slots of its parts, Tiles::shares apart.
  __device__ __forceinline__ int shared() const { return shared_; }
  __device__ __forceinline__ int parts() const { return parts_; }
  __device__ __forceinline__ WgmmaWork shared_at(int tile, int rank) const {
    WgmmaWork work = tile_at(whole_ + tile, rank);
    work.slot = slot_of(tile, 0, rank);
    return work;
  }

 private:
  // Of what is shared, in stages: shorter parts take less time than their sums take to be stored and read, more of them
  // wait longer in the second pass than they save here, and what is saved must be worth that pass.
  static constexpr int least_stages = 8, most_parts = 16, least_saving = 16;

  static __device__ __forceinline__ int ceil_div(long long a, int b) { return static_cast<int>((a + b - 1) / b); }

  /// The place of a tile of the cluster's, whose k is still to be said.
  __device__ __forceinline__ WgmmaWork tile_at(int index, int rank) const {
    const int plane = Tiles::y_planes ? index / (tiles_m_ * tiles_n_) : 0;
    const TileIndex tile = of_cluster(index - plane * tiles_m_ * tiles_n_);
    const int m = tile.m * Tiles::cluster_m + (Tiles::cluster_m == 1 ? 0 : rank);
    const int n = tile.n * Tiles::cluster_n + (Tiles::cluster_n == 1 ? 0 : rank);
    return {m * Tiles::tile_m, n * Tiles::tile_n, 0, 0, 0, 0, rows_, plane};
  }
  __device__ __forceinline__ TileIndex of_cluster(int index) const {
    if (!by_columns_) return tile_in_bands(index, tiles_m_, tiles_n_, group_);
    const TileIndex turned = tile_in_bands(index, tiles_n_, tiles_m_, group_);
    return {turned.n, turned.m};
  }

  /// The part that a cluster takes first after the whole tiles, or those that follow it.
  __device__ __forceinline__ WgmmaWork of_last_round(int over) const {
    const int turn = over / clusters_, cluster = over - turn * clusters_, helper = cluster - shared_;
    const int part = helper < 0 ? 0 : 1 + helper / shared_;
    const int tile = helper < 0 ? cluster : helper % shared_ * run_ + turn;
    WgmmaWork work = tile_at(whole_ + tile, rank_);
    work.first_k = begin_of(part);
    work.k_tiles = begin_of(part + 1) - work.first_k;
    work.slot = slot_of(tile, part, rank_);
    return work;
  }
  __device__ __forceinline__ int begin_of(int part) const {
    return part == 0 ? 0 : first_part_ + (k_tiles_ - first_part_) * (part - 1) / (parts_ - 1);
  }
  __device__ __forceinline__ int slot_of(int tile, int part, int rank) const {
    return (tile * parts_ + part) * Tiles::shares + (Tiles::shares == 1 ? 0 : rank);
  }

  /// The first stage of a part. Parts are no more than stages, so none is empty.
  __device__ __forceinline__ int share(int part) const {
    if (part == 0) return 0;  // without a division where there is nothing to share
    const int parts = splits_ * Tiles::cluster_k;
    return part == parts ? k_tiles_ : k_tiles_ * part / parts;
  }

  int rank_, splits_, rows_, tiles_m_, tiles_n_, k_tiles_, group_;
  bool by_columns_;
  int count_;
  int shared_ = 0, clusters_ = 0, parts_ = 0, run_ = 0, first_part_ = 0,
      whole_ = 0;  // of the last round, if it is shared
};

/// Copies the stages of all of the block's work to the ring, from `work` on, which is that at schedule.first() if there
/// is any. For one warp, of which one thread copies.
template <typename Tiles, typename Schedule>
__device__ __forceinline__ void produce(const tensor_map* x_map, const tensor_map* w_map, const Ring<Tiles>& ring,
                                        const Schedule& schedule, WgmmaWork work) {
  const bool copies = elect_one();
  const int rank = Tiles::shares == 1 ? 0 : static_cast<int>(cluster_block_rank());
  RingPosition<Tiles::stages> at;
  for (int index = schedule.first(); index < schedule.count();) {
#pragma unroll 1
    for (int tile = 0; copies && tile < work.k_tiles; ++tile, at.advance()) {
      const int k = (work.first_k + tile) * Tiles::tile_k;
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
      mbarrier_arrive_expect_tx(ring.full(at.slot), Tiles::stage_bytes);
      const unsigned stage = ring.stage(at.slot), full = ring.full(at.slot);
      Tiles::X::load(stage, x_map, full, work.first_row + work.row, k, work.plane, rank);
      Tiles::W::load(stage + Tiles::X::bytes, w_map, full, work.column, k, work.plane, rank);
    }
    __syncwarp();
    index += schedule.step();
    if (index < schedule.count()) work = schedule.at(index);
  }
  if constexpr (Tiles::shares > 1) {
    // Warps of the other block have yet to say here that they have read the last stages: until then this block must not
    // end.
    for (int slot = 0; copies && slot < Tiles::stages; ++slot, at.advance())
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
  }
}

/// Whose turn it is to multiply, in ping-pong: consumers 0 and 1 alternate, by barriers 4 and 5, so that one stores
/// while the other has the tensor cores to itself.
template <typename Tiles>
struct Turns {
  static constexpr int first_barrier = 4, threads = 2 * warpgroup;

  /// Before a tile; the block's first waits for nobody.
  static __device__ __forceinline__ void take(int consumer, bool first_of_block) {
    if (Tiles::pingpong && !first_of_block) named_barrier_sync(first_barrier + consumer, threads);
  }
  /// After its last product is under way, if there is a next tile.
  static __device__ __forceinline__ void pass(int consumer, bool more) {
    if (Tiles::pingpong && more) named_barrier_arrive(first_barrier + (consumer ^ 1), threads);
  }
};

/// How many of a warpgroup's 64-row products, whose rows of a begin at `first`, are of rows that y has. By a vote, so that
/// the compiler sees that all lanes agree.
template <typename Tiles>
__device__ __forceinline__ int filled_products(const WgmmaWork& work, int first) {
  if constexpr (Tiles::swap) return Tiles::row_blocks;  // a is w
  const int product = threadIdx.x % 32, row = work.row + first + product * wgmma_rows;
  return __popc(__ballot_sync(full_warp, product < Tiles::row_blocks && row < work.rows));
}

/// The same. By reductions over the warp, so that the compiler sees that all lanes agree where the tile lies, as copies
/// take it.
__device__ __forceinline__ WgmmaWork agreed(WgmmaWork work) {
  work.row = __reduce_max_sync(full_warp, work.row);
  work.column = __reduce_max_sync(full_warp, work.column);
  work.first_row = __reduce_max_sync(full_warp, work.first_row);
  work.plane = __reduce_max_sync(full_warp, work.plane);
  return work;
}

/// Multiplies and hands each tile that is this warpgroup's to `store(sums, work, first)`, `first` being where its rows
/// of a begin. `work` is that at schedule.first() if there is any; `scales(work)` gives NoScales or StageScales.
template <typename Tiles, typename Schedule, typename Scales, typename Store>
__device__ __forceinline__ void consume(const Ring<Tiles>& ring, const Schedule& schedule, int consumer, WgmmaWork work,
                                        Scales scales, Store store) {
  const int first = Tiles::pingpong ? 0 : consumer * Tiles::row_blocks * wgmma_rows;
  const auto operands = StageOperands<Tiles>::in(ring, first);
  RingPosition<Tiles::stages> at;
  int index = schedule.first();
  bool more = index < schedule.count();
  const auto move_on = [&] {
    index += schedule.step();
    more = index < schedule.count();
    if (more) work = agreed(schedule.at(index));
  };
  work = agreed(work);
  if (Tiles::pingpong && consumer == 1) {  // the other's tile comes first
    at.advance(work.k_tiles);
    move_on();
  }
#pragma unroll 1
  for (bool first_of_block = consumer == 0; more; first_of_block = false) {
    const WgmmaWork now = work;
    WgmmaSums<Tiles> sums;
    const int filled = filled_products<Tiles>(now, first);
    Turns<Tiles>::take(consumer, first_of_block);
    int held = 0;
    if constexpr (sizeof(typename Tiles::X::T) == 1) {
      const auto of_tile = scales(now);
      promote_products<Tiles>(sums, ring, at, operands, now.first_k, now.k_tiles, filled,
                              of_tile.at(now.row, now.column, first));
    } else {
      held = start_filled_products<Tiles>(sums, ring, at, operands, now.k_tiles, filled);
    }
    Turns<Tiles>::pass(consumer, index + schedule.step() < schedule.count());

    // While the last products are under way: the divisions that tell where the next tile lies take as long as some.
    move_on();
    if (Tiles::pingpong) {
      at.advance(work.k_tiles);
      move_on();
    }
    if constexpr (sizeof(typename Tiles::X::T) == 2) finish_products<Tiles>(sums, ring, held);
    store(sums, now, first);
  }
}

/// Registers: 168 a thread where the block has three warpgroups and 128 where it has four; the producer's needs few.
template <typename Tiles>
__device__ __forceinline__ void take_registers(bool produces) {
  constexpr int of_producer = Tiles::consumers == 3 ? 32 : 24, of_consumer = Tiles::consumers == 3 ? 160 : 240;
  if constexpr (Tiles::consumers >= 2) {
    if (produces) {
      setmaxnreg_dec<of_producer>();
    } else {
      setmaxnreg_inc<of_consumer>();
    }
  }
}

/// What a warpgroup stores its tiles through.
struct WgmmaStaging {
  char* ring;    // of the block, which cluster_k takes once it is read
  char* pieces;  // of the warpgroup
  int turn;      // of the two buffers in `pieces`
};

template <typename Tiles>
inline constexpr int staging_bytes = Tiles::consumers* Piece<Tiles>::staging_bytes;

/// A block of a kernel: makes the ring, waits for the kernel before, and multiplies what `make_schedule()` gives it, as
/// `consume` says; store(sums, work, first, staging). What make_schedule reads of memory it waits for itself: the other
/// blocks of the cluster, and the kernel before, take their time while divisions tell where the first tile lies.
template <typename Tiles, typename MakeSchedule, typename Scales, typename Store>
__device__ __forceinline__ void wgmma_block(const tensor_map* x_map, const tensor_map* w_map,
                                            MakeSchedule make_schedule, Scales scales, Store store) {
  char* const shared = dynamic_shared();
  const Ring<Tiles> ring{shared_address(shared), shared_address(shared) + Ring<Tiles>::bytes + staging_bytes<Tiles>};
  if (threadIdx.x == 0) {
    prefetch_tensormap(x_map);
    prefetch_tensormap(w_map);
    ring.make_barriers();
  }
  __syncwarp();
  if constexpr (Tiles::cluster > 1) cluster_arrive_relaxed();
  const auto schedule = make_schedule();
  WgmmaWork work = {};
  if (schedule.first() < schedule.count()) work = schedule.at(schedule.first());
  if constexpr (Tiles::cluster > 1) {
    cluster_wait();
  } else {
    __syncthreads();
  }
  wait_for_predecessor();
  launch_dependents();

  const int of_block = __shfl_sync(full_warp, threadIdx.x / warpgroup, 0);  // seen to be the same in all lanes
  take_registers<Tiles>(of_block == 0);
  if (of_block == 0) {
    if (threadIdx.x < 32) produce<Tiles>(x_map, w_map, ring, schedule, work);
    return;
  }
  const int consumer = of_block - 1;
  WgmmaStaging staging = {shared, shared + Ring<Tiles>::bytes + consumer * Piece<Tiles>::staging_bytes, 0};
  consume<Tiles>(
      ring, schedule, consumer, work, scales,
      [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& of_tile, int first) { store(sums, of_tile, first, staging); });
  tma_store_wait<0>();  // y is written, and the staging read, before the block ends
}

/// The tile to y: by TMA if `by_tma`, else by threads.
template <typename Tiles, bool by_tma, typename Epilogue>
__device__ __forceinline__ void store_tile(const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first,
                                           WgmmaStaging& staging, const StoredRows& y, const Epilogue& ending) {
  if constexpr (Tiles::cluster_k > 1) {
    named_barrier_sync(Turns<Tiles>::first_barrier, Tiles::consumers * warpgroup);  // the ring is read
    store_over_cluster<Tiles>(sums, staging.ring, work.row, work.column, first, cluster_block_rank(), ending);
  } else if constexpr (by_tma) {
    store_by_tma<Tiles>(sums, y, staging.pieces, staging.turn, work.row, work.column, first, ending);
  } else {
    store_directly<Tiles>(sums, staging.pieces, work.row, work.column, first, ending);
  }
}

}  // namespace kiln::gemm
