// A block of a kernel that multiplies by wgmma: who copies, who multiplies, in which order.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/elect.cuh"
#include "common/gemm/tile_order.cuh"
#include "common/gemm/wgmma_parts.cuh"
#include "common/gemm/wgmma_promoted.cuh"
#include "common/gemm/wgmma_store.cuh"
#include "common/setmaxnreg.cuh"

namespace kiln::gemm {

template <typename Tiles>
inline constexpr int staging_bytes = Tiles::consumers* Piece<Tiles>::staging_bytes;

/// How far a tile's products may begin into what was copied of an operand (rows_before). What they read past it belongs
/// to the stages and the staging that follow.
template <typename Tiles>
struct EdgeLimits {
  template <typename Operand>
  static __device__ constexpr int within(int bytes) {
    return least_of(Operand::extent, bytes / span) / Operand::whole * Operand::whole;
  }
  static constexpr int x = within<typename Tiles::X>(Tiles::W::bytes + staging_bytes<Tiles>);
  static constexpr int w = within<typename Tiles::W>(staging_bytes<Tiles>);
};

/// Returns the work with its copies inside of the operands, which end with the product's rows and at `columns`.
template <typename Tiles>
__device__ __forceinline__ WgmmaWork copied_inside(WgmmaWork work, int columns) {
  work.x_back =
      rows_before<typename Tiles::X>(work.first_row + work.row, work.first_row + work.rows, EdgeLimits<Tiles>::x);
  work.w_back = rows_before<typename Tiles::W>(work.column, columns, EdgeLimits<Tiles>::w);
  return work;
}

/// Which work a block has, in which order: that of its cluster, of which it takes the tile or part that its rank says.
/// The tiles of the last round may be shared (share_tail).
template <typename Tiles>
class WgmmaSchedule {
 public:
  /// `by_columns`: bands of tiles are columns, of `group` tiles, and not rows. `products`: planes, one after another.
  __device__ __forceinline__ WgmmaSchedule(int m, long long n, long long k, int group, bool by_columns,
                                           int products = 1)
      : rank_(Tiles::cluster == 1 ? 0 : static_cast<int>(cluster_block_rank())),
        rows_(m),
        columns_(static_cast<int>(n)),
        tiles_m_(ceil_div(m, Tiles::tile_m * Tiles::cluster_m)),
        tiles_n_(ceil_div(columns_, Tiles::tile_n * Tiles::cluster_n)),
        k_tiles_(ceil_div(static_cast<int>(k), Tiles::tile_k)),
        group_(group),
        by_columns_(by_columns),
        count_(tiles_m_ * tiles_n_ * products) {}

  /// `clusters` take the tiles in turns. If the last round would leave enough clusters idle, they help. Each of its
  /// tiles is cut along k. The first part is for the cluster that would have had the whole tile, which also adds up the
  /// others. The idle ones take the other parts: one each or, where they are few, the second parts of `run` tiles each.
  /// Parts of one number begin at one place of k and are multiplied side by side, so that they find in L2 what others
  /// loaded.
  ///
  /// Who helps has a lower number than who waits for it, and so is never the one that has yet to start.
  __device__ __forceinline__ void share_tail(int clusters) {
    const int tail = count_ % clusters, idle = clusters - tail;
    if (tail == 0) return;
    const int run = ceil_div(tail, idle);
    const int parts = run > 1 ? 2 : max(min(min(clusters / tail, most_parts), k_tiles_ / least_stages), 1);
    const int first_part = run > 1 ? ceil_div(k_tiles_ * run, run + 1) : ceil_div(k_tiles_, parts);
    if (k_tiles_ - first_part < least_saving) return;
    shared_ = tail;
    clusters_ = clusters;
    parts_ = parts;
    run_ = run;
    first_part_ = first_part;
    whole_ = count_ - tail;
    const int pieces = first() >= idle                 ? 1
                       : first() >= tail * (parts - 1) ? 0
                                                       : max(min(run, tail - first() % tail * run), 0);
    count_ = whole_ + pieces * clusters;
  }

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / Tiles::cluster; }
  __device__ __forceinline__ int step() const { return static_cast<int>(gridDim.x) / Tiles::cluster; }
  /// This cluster's work has the indices below it, from first() on by step().
  __device__ __forceinline__ int count() const { return count_; }

  __device__ __forceinline__ WgmmaWork at(int index) const {
    if (parts_ > 0 && index >= whole_) return of_last_round(index - whole_);
    WgmmaWork work = tile_at(index);
    work.first_k = Tiles::cluster_k == 1 ? 0 : k_tiles_ * rank_ / Tiles::cluster_k;
    work.k_tiles = (Tiles::cluster_k == 1 ? k_tiles_ : k_tiles_ * (rank_ + 1) / Tiles::cluster_k) - work.first_k;
    return work;
  }

 private:
  // Bounds on what is shared, in stages. Shorter parts take less time than their sums take to be stored and read.
  // Adding up more of them takes longer than they save. What is saved must be worth the wait for them.
  static constexpr int least_stages = 8, most_parts = 8, least_saving = 16;

  /// Unsigned 32-bit division, on the critical path of the first copy.
  /// REQUIRES: a, b >= 0.
  static __device__ __forceinline__ int ceil_div(int a, int b) {
    return static_cast<int>((static_cast<unsigned>(a) + static_cast<unsigned>(b) - 1) / static_cast<unsigned>(b));
  }

  /// The place of a tile of the cluster's, whose k is still to be said.
  __device__ __forceinline__ WgmmaWork tile_at(int index) const {
    const int plane = Tiles::y_planes ? index / (tiles_m_ * tiles_n_) : 0;
    const TileIndex tile = of_cluster(index - plane * tiles_m_ * tiles_n_);
    const int m = tile.m * Tiles::cluster_m + (Tiles::cluster_m == 1 ? 0 : rank_);
    const int n = tile.n * Tiles::cluster_n + (Tiles::cluster_n == 1 ? 0 : rank_);
    return copied_inside<Tiles>({m * Tiles::tile_m, n * Tiles::tile_n, 0, 0, 0, rows_, plane}, columns_);
  }
  __device__ __forceinline__ TileIndex of_cluster(int index) const {
    const TileIndex tile =
        tile_in_bands(index, by_columns_ ? tiles_n_ : tiles_m_, by_columns_ ? tiles_m_ : tiles_n_, group_);
    return by_columns_ ? TileIndex{tile.n, tile.m} : tile;
  }

  /// The part that a cluster takes first after the whole tiles, or those that follow it.
  __device__ __forceinline__ WgmmaWork of_last_round(int over) const {
    const int idle = clusters_ - shared_, turn = over / clusters_, cluster = over - turn * clusters_;
    const bool helps = cluster < idle;
    const int part = helps ? 1 + cluster / shared_ : 0, tile = helps ? cluster % shared_ * run_ + turn : cluster - idle;
    WgmmaWork work = tile_at(whole_ + tile);
    work.first_k = begin_of(part);
    work.k_tiles = begin_of(part + 1) - work.first_k;
    work.slot = (tile * (parts_ - 1) + (helps ? part - 1 : 0)) * Tiles::shares + (Tiles::shares == 1 ? 0 : rank_);
    work.others = helps ? 0 : parts_ - 1;
    return work;
  }
  __device__ __forceinline__ int begin_of(int part) const {
    return part == 0 ? 0 : first_part_ + (k_tiles_ - first_part_) * (part - 1) / (parts_ - 1);
  }

  int rank_, rows_, columns_;
  int tiles_m_, tiles_n_, k_tiles_, group_;
  bool by_columns_;
  int count_;
  int shared_ = 0, clusters_ = 0, parts_ = 0, run_ = 0, first_part_ = 0,
      whole_ = 0;  // of the last round, if it is shared
};

/// Starts the copies of a stage, which is the one at `tile` of the work. For one thread.
template <typename Tiles>
__device__ __forceinline__ void copy_stage(const tensor_map* x_map, const tensor_map* w_map, const Ring<Tiles>& ring,
                                           int slot, const WgmmaWork& work, int tile, int rank, int x_box) {
  const int k = (work.first_k + tile) * Tiles::tile_k;
  const unsigned stage = ring.stage(slot), full = ring.full(slot);
  mbarrier_arrive_expect_tx(full, Tiles::X::bytes_in(x_box) + Tiles::W::bytes);
  Tiles::X::load(stage, x_map, full, work.first_row + work.row - work.x_back, k, work.plane, rank, x_box);
  Tiles::W::load(stage + Tiles::X::bytes, w_map, full, work.column - work.w_back, k, work.plane, rank);
}

/// The first stage of the block's first work. It is copied before the block's warps branch, since the code of the
/// branches comes from memory too. No more than one, for what is asked for at once comes at once.
template <typename Tiles>
__device__ __forceinline__ void begin_copies(const tensor_map* x_map, const tensor_map* w_map, const Ring<Tiles>& ring,
                                             const WgmmaWork& work, int rank, int x_box) {
  if (elect_one() && work.k_tiles > 0) copy_stage(x_map, w_map, ring, 0, work, 0, rank, x_box);
}

/// Brings what the first stages take of w to L2. Meanwhile blocks that load for each other wait for each other, or for
/// the kernel before. That kernel may still write w, which L2 sees.
template <typename Tiles>
__device__ __forceinline__ void prefetch_stages(const tensor_map* w_map, const WgmmaWork& work, int rank) {
  if (!elect_one()) return;
#pragma unroll 1
  for (int tile = 0; tile < min(2, work.k_tiles); ++tile)
    Tiles::W::prefetch(w_map, work.column - work.w_back, (work.first_k + tile) * Tiles::tile_k, work.plane, rank);
}

/// Copies the other stages of all of the block's work to the ring, and what others add to it, from `work` on. For one
/// warp, of which one thread copies.
/// REQUIRES: `work` is that at schedule.first(), if there is any.
template <typename Tiles, typename Schedule, typename Parts>
__device__ __forceinline__ void produce(const tensor_map* x_map, const tensor_map* w_map, const Ring<Tiles>& ring,
                                        const Schedule& schedule, WgmmaWork work, int rank, int x_box,
                                        const Parts& parts) {
  const bool copies = elect_one();
  int tile = min(1, work.k_tiles);
  RingPosition<Tiles::stages> at;
  at.advance(tile);
  for (int index = schedule.first(); index < schedule.count(); tile = 0) {
#pragma unroll 1
    for (; copies && tile < work.k_tiles; ++tile, at.advance()) {
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
      copy_stage(x_map, w_map, ring, at.slot, work, tile, rank, x_box);
    }
    if constexpr (Parts::any) {
      if (copies) parts.copy(ring, at, work);
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

/// Which consumer multiplies next, in ping-pong. Consumers 0 and 1 alternate, by barriers 4 and 5, so that one stores
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

/// Returns the work, which is equal in all lanes. It takes reductions over the warp, so that the compiler sees that all
/// lanes agree where the tile lies, as copies take it.
__device__ __forceinline__ WgmmaWork agreed(WgmmaWork work) {
  work.row = __reduce_max_sync(full_warp, work.row);
  work.column = __reduce_max_sync(full_warp, work.column);
  work.first_row = __reduce_max_sync(full_warp, work.first_row);
  work.plane = __reduce_max_sync(full_warp, work.plane);
  work.x_back = __reduce_max_sync(full_warp, work.x_back);
  work.w_back = __reduce_max_sync(full_warp, work.w_back);
  return work;
}

/// Multiplies and hands each tile that is this warpgroup's to `store(sums, work)`. `first`: where the warpgroup's rows of
/// a begin. `work` is that at schedule.first() if there is any; `scales(work)` gives NoScales or StageScales; `parts` are
/// WholeTiles or SharedTiles.
template <typename Tiles, typename Schedule, typename Scales, typename Parts, typename Store>
__device__ __forceinline__ void consume(const Ring<Tiles>& ring, const Schedule& schedule, int consumer, int first,
                                        WgmmaWork work, Scales scales, const Parts& parts, Store store) {
  const auto in_ring = StageOperands<Tiles>::in(ring, first);
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
    at.advance(parts.stages(work));
    move_on();
  }
#pragma unroll 1
  for (bool first_of_block = consumer == 0; more; first_of_block = false) {
    const WgmmaWork now = work;
    // For a tile wholly outside, any place in shared memory will do.
    const auto operands = in_ring.from(min(now.x_back, EdgeLimits<Tiles>::x), min(now.w_back, EdgeLimits<Tiles>::w));
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
    RingPosition<Tiles::stages> at_parts = at;
    if constexpr (Parts::any) at.advance(parts.stages(now) - now.k_tiles);
    move_on();
    if (Tiles::pingpong) {
      at.advance(parts.stages(work));
      move_on();
    }
    if constexpr (sizeof(typename Tiles::X::T) == 2) finish_products<Tiles>(sums, ring, held);
    if constexpr (Parts::any) {
      if (now.slot >= 0 && now.others == 0) {
        parts.hand_over(now, first, sums);
        continue;
      }
      parts.add(ring, at_parts, now, first, sums);
    }
    store(sums, now);
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

/// A block of a kernel: makes the ring, waits for the kernel before, and multiplies what `make_schedule()` gives it, as
/// `consume` says. It calls store(sums, work, first, staging). `x_rows` is what x_map has. What make_schedule reads of
/// memory it waits for itself.
template <typename Tiles, typename MakeSchedule, typename Scales, typename Parts, typename Store>
__device__ __forceinline__ void wgmma_block(const tensor_map* x_map, const tensor_map* w_map, int x_rows,
                                            MakeSchedule make_schedule, Scales scales, const Parts& parts,
                                            Store store) {
  char* const shared = dynamic_shared();
  const Ring<Tiles> ring{shared_address(shared), shared_address(shared) + Ring<Tiles>::bytes + staging_bytes<Tiles>};
  const int rank = Tiles::shares == 1 ? 0 : static_cast<int>(cluster_block_rank());
  const int x_box = Tiles::X::rows_of_box(x_rows);
  const int warp = __shfl_sync(full_warp, threadIdx.x / 32, 0);  // seen to be the same in all lanes
  if (warp == 0) {
    ring.template make_barriers<0, 1>();
  } else if (warp == 1) {
    if (elect_one()) {
      prefetch_tensormap(x_map);
      prefetch_tensormap(w_map);
    }
    ring.template make_barriers<1, Tiles::stages>();
  }
  // Divisions tell where the first tile lies, while barriers are made, here and in the blocks that load for this one.
  if constexpr (Tiles::shares > 1) cluster_arrive_relaxed();
  const auto schedule = make_schedule();
  WgmmaWork work = {};
  if (schedule.first() < schedule.count()) work = schedule.at(schedule.first());
  if (warp == 1) prefetch_stages<Tiles>(w_map, work, rank);
  if constexpr (Tiles::shares > 1) cluster_wait();
  wait_for_predecessor();
  if (warp == 0) begin_copies(x_map, w_map, ring, work, rank, x_box);  // by a barrier of its own making
  __syncwarp();
  if constexpr (Tiles::shares == 1) named_barrier_sync(0, Tiles::threads);
  launch_dependents();

  // Not of `warp`: ptxas would ignore setmaxnreg.
  const int of_block = __shfl_sync(full_warp, threadIdx.x / warpgroup, 0);
  take_registers<Tiles>(of_block == 0);
  if (of_block == 0) {
    if (warp == 0) produce(x_map, w_map, ring, schedule, work, rank, x_box, parts);
    return;
  }
  const int consumer = of_block - 1, first = Tiles::pingpong ? 0 : consumer * Tiles::row_blocks * wgmma_rows;
  WgmmaStaging staging = {shared, shared + Ring<Tiles>::bytes + consumer * Piece<Tiles>::staging_bytes, 0};
  consume<Tiles>(ring, schedule, consumer, first, work, scales, parts,
                 [&](WgmmaSums<Tiles>& sums, const WgmmaWork& of_tile) { store(sums, of_tile, first, staging); });
  tma_store_wait_read<0>();  // the staging is read before the block ends
}

/// The tile to y: by TMA if `by_tma`, else by threads.
template <typename Tiles, bool by_tma, typename Epilogue>
__device__ __forceinline__ void store_tile(const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first,
                                           WgmmaStaging& staging, const StoredRows& y, const Epilogue& ending) {
  if constexpr (Tiles::cluster_k > 1) {
    named_barrier_sync(Turns<Tiles>::first_barrier, Tiles::consumers * warpgroup);  // the ring is read
    store_over_cluster<Tiles>(sums, staging.ring, work.row, work.column, first, cluster_block_rank(), ending);
  } else if constexpr (by_tma) {
    store_by_tma<Tiles>(sums, y, staging, work.row, work.column, first, ending);
  } else {
    store_directly<Tiles>(sums, staging.pieces, work.row, work.column, first, ending);
  }
}

}  // namespace kiln::gemm
