// gemm on the tensor cores of sm_90a by wgmma: common/gemm/wgmma_tile.cuh and wgmma_store.cuh say how a tile is multiplied and stored.
//
// As many blocks as run at once take tiles in turns. In each, one thread of the first warpgroup copies stages of x and w to a ring, tile
// after tile, and the other warpgroups multiply; so the copies for the next tile go on while this one is stored.
//
// Few tiles are shared by several blocks, each with a part of k: those of a cluster add their sums in it (cluster_k), or they
// go to a workspace (`split`) and gemm_reduce of mma.cuh adds them. Both in a fixed order.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/elect.cuh"
#include "common/gemm/tile_order.cuh"
#include "common/gemm/wgmma_promoted.cuh"
#include "common/gemm/wgmma_store.cuh"
#include "common/length.cuh"
#include "common/setmaxnreg.cuh"
#include "mma.cuh"

namespace kiln::gemm {

/// A tile, or a part of one along k, by its corner; k in stages.
struct WgmmaWork {
  int row, column, first_k, k_tiles, split;
};

/// Which work a block has, in which order: that of its cluster, of which it takes the tile or part that its rank says.
template <typename Tiles>
class WgmmaSchedule {
 public:
  /// `by_columns`: bands of tiles are columns, of `group` tiles, and not rows.
  __device__ __forceinline__ WgmmaSchedule(int m, long long n, long long k, int splits, int group, bool by_columns)
      : rank_(Tiles::cluster == 1 ? 0 : static_cast<int>(cluster_block_rank())),
        parts_(splits * Tiles::cluster_k),
        tiles_m_(ceil_div(ceil_div(m, Tiles::tile_m), Tiles::cluster_m)),
        tiles_n_(ceil_div(ceil_div(n, Tiles::tile_n), Tiles::cluster_n)),
        k_tiles_(ceil_div(k, Tiles::tile_k)),
        splits_(splits),
        group_(group),
        by_columns_(by_columns) {}

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / Tiles::cluster; }
  __device__ __forceinline__ int step() const { return static_cast<int>(gridDim.x) / Tiles::cluster; }
  __device__ __forceinline__ int count() const { return tiles_m_ * tiles_n_ * splits_; }

  __device__ __forceinline__ WgmmaWork at(int index) const {
    const int split = index % splits_, part = split * Tiles::cluster_k + (Tiles::cluster_k == 1 ? 0 : rank_);
    const TileIndex tile = of_cluster(index / splits_);
    const int m = tile.m * Tiles::cluster_m + (Tiles::cluster_m == 1 ? 0 : rank_);
    const int n = tile.n * Tiles::cluster_n + (Tiles::cluster_n == 1 ? 0 : rank_);
    const int first_k = share(part), end_k = share(part + 1);
    return {m * Tiles::tile_m, n * Tiles::tile_n, first_k, end_k - first_k, split};
  }

 private:
  static __device__ __forceinline__ int ceil_div(long long a, int b) { return static_cast<int>((a + b - 1) / b); }

  __device__ __forceinline__ TileIndex of_cluster(int index) const {
    if (!by_columns_) return tile_in_bands(index, tiles_m_, tiles_n_, group_);
    const TileIndex turned = tile_in_bands(index, tiles_n_, tiles_m_, group_);
    return {turned.n, turned.m};
  }
  /// The first stage of a part. Parts are no more than stages, so none is empty.
  __device__ __forceinline__ int share(int part) const { return k_tiles_ * part / parts_; }

  int rank_, parts_, tiles_m_, tiles_n_, k_tiles_, splits_, group_;
  bool by_columns_;
};

/// Copies the stages of all of the block's work to the ring. For one thread.
template <typename Tiles>
__device__ __forceinline__ void produce(const tensor_map* x_map, const tensor_map* w_map, const Ring<Tiles>& ring,
                                        const WgmmaSchedule<Tiles>& schedule) {
  const int rank = Tiles::shares == 1 ? 0 : static_cast<int>(cluster_block_rank());
  RingPosition<Tiles::stages> at;
  for (int index = schedule.first(); index < schedule.count(); index += schedule.step()) {
    const WgmmaWork work = schedule.at(index);
#pragma unroll 1
    for (int tile = 0; tile < work.k_tiles; ++tile, at.advance()) {
      const int k = (work.first_k + tile) * Tiles::tile_k;
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
      mbarrier_arrive_expect_tx(ring.full(at.slot), Tiles::stage_bytes);
      const unsigned stage = ring.stage(at.slot), full = ring.full(at.slot);
      Tiles::X::load(stage, x_map, full, work.row, k, rank);
      Tiles::W::load(stage + Tiles::X::bytes, w_map, full, work.column, k, rank);
    }
  }
  if constexpr (Tiles::shares > 1) {
    // Warps of the other block have yet to say here that they have read the last stages: until then this block must not end.
    for (int slot = 0; slot < Tiles::stages; ++slot, at.advance()) mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
  }
}

/// Whose turn it is to multiply, in ping-pong: consumers 0 and 1 alternate, by barriers 3 and 4, so that one stores while the other has the
/// tensor cores to itself.
template <typename Tiles>
struct Turns {
  static constexpr int first_barrier = 3, threads = 2 * warpgroup;

  /// Before the block's tile number `turn`, of which the first waits for nobody.
  static __device__ __forceinline__ void take(int consumer, int turn) {
    if (Tiles::pingpong && turn > 0) named_barrier_sync(first_barrier + consumer, threads);
  }
  /// After its last product is under way, if there is a next tile.
  static __device__ __forceinline__ void pass(int consumer, bool more) {
    if (Tiles::pingpong && more) named_barrier_arrive(first_barrier + (consumer ^ 1), threads);
  }
};

/// Multiplies and hands each tile that is this warpgroup's to `store(sums, work, first)`, `first` being where its rows of a begin.
template <typename Tiles, typename Scales, typename Store>
__device__ __forceinline__ void consume(const Ring<Tiles>& ring, const WgmmaSchedule<Tiles>& schedule, int consumer,
                                        const Scales& scales, Store store) {
  const int first = Tiles::pingpong ? 0 : consumer * Tiles::row_blocks * wgmma_rows;
  RingPosition<Tiles::stages> at;
  int turn = 0;
#pragma unroll 1
  for (int index = schedule.first(); index < schedule.count(); index += schedule.step(), ++turn) {
    const WgmmaWork work = schedule.at(index);
    if (Tiles::pingpong && turn % 2 != consumer) {
      at.advance(work.k_tiles);
      continue;
    }
    WgmmaSums<Tiles> sums;
    const bool more = index + schedule.step() < schedule.count();
    Turns<Tiles>::take(consumer, turn);
    if constexpr (sizeof(typename Tiles::X::T) == 1) {
      promote_products<Tiles>(sums, ring, at, first, work.first_k, work.k_tiles,
                              scales.at(work.row, work.column, first));
      Turns<Tiles>::pass(consumer, more);
    } else {
      start_products<Tiles>(sums, ring, at, first, work.k_tiles);
      Turns<Tiles>::pass(consumer, more);
      finish_products<Tiles>(sums, ring, at);
    }
    store(sums, work, first);
  }
}

/// Registers: 168 a thread where the block has three warpgroups, of which the producer's needs few.
template <typename Tiles>
__device__ __forceinline__ void take_registers(bool produces) {
  if constexpr (Tiles::consumers == 2) {
    if (produces) {
      setmaxnreg_dec<24>();
    } else {
      setmaxnreg_inc<240>();
    }
  }
}

template <typename Tiles>
__device__ __forceinline__ void sync_cluster() {
  if constexpr (Tiles::cluster > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
}

}  // namespace kiln::gemm

/// grid: blocks that run at once, a multiple of the cluster (with cluster_k: a cluster a tile); block, cluster and dynamic shared memory as wgmma.toml
/// says. `y_map` is used if `stored` is 0; else that many elements of y are stored at once. Of the arguments after it, those
/// up to `partial`, which is [splits, m, round_up(n, 8)] and takes the sums when `split`, and the strides are the epilogue's.
template <typename T, typename U, kiln::gemm::Layout layout, typename Config, int tile_m, int tile_n, int stages,
          int cluster_m, int cluster_n, int cluster_k, bool swap, bool pingpong, int stored, bool split>
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
  char* const shared = kiln::dynamic_shared();
  constexpr int staging_bytes = Piece<Tiles>::staging_bytes;
  const Ring<Tiles> ring{kiln::shared_address(shared),
                         kiln::shared_address(shared) + Ring<Tiles>::bytes + Tiles::consumers * staging_bytes};
  if (threadIdx.x == 0) {
    kiln::prefetch_tensormap(&x_map);
    kiln::prefetch_tensormap(&w_map);
    ring.make_barriers();
  }
  sync_cluster<Tiles>();
  kiln::wait_for_predecessor();
  kiln::launch_dependents();

  const int m = rows.read();
  const WgmmaSchedule<Tiles> schedule(m, n, k, splits, group, by_columns != 0);
  const int of_block = __shfl_sync(0xffffffffu, threadIdx.x / warpgroup, 0);  // seen to be the same in all lanes
  take_registers<Tiles>(of_block == 0);
  if (of_block == 0) {
    if (threadIdx.x < 32 && kiln::elect_one()) produce<Tiles>(&x_map, &w_map, ring, schedule);
    return;
  }

  const int consumer = of_block - 1;
  char* const staging = shared + Ring<Tiles>::bytes + consumer * staging_bytes;
  int turn = 0;
  const auto scales = [&] {
    if constexpr (Config::scaling == Scaling::block) {
      return StageScales<Tiles>{x_scale, w_scale, x_scale_stride, x_scale_k_stride, w_scale_stride, w_scale_k_stride,
                                m,       n};
    } else {
      return NoScales{};
    }
  }();
  consume<Tiles>(ring, schedule, consumer, scales, [&](const WgmmaSums<Tiles>& sums, const WgmmaWork& work, int first) {
    const epilogue<Config, stored == 0 ? 16 / sizeof(typename Config::out) : stored> ending = {
        y,     bias, residual, x_scale, w_scale, y_scale, y_stride, residual_stride, x_scale_stride, w_scale_stride,
        scale, m,    n};
    if constexpr (split) {
      const long long stride = partial_stride(n);
      const PartialSums sink = {partial + work.split * stride * m, stride, m, n};
      store_directly<Tiles>(sums, staging, work.row, work.column, first, sink);
    } else if constexpr (cluster_k > 1) {
      kiln::named_barrier_sync(3, Tiles::consumers * warpgroup);  // the ring is read
      store_over_cluster<Tiles>(sums, shared, work.row, work.column, first, kiln::cluster_block_rank(), ending);
    } else if constexpr (stored == 0) {
      store_by_tma<Tiles>(sums, &y_map, staging, turn, work.row, work.column, first, m < rows.bound, ending);
    } else {
      store_directly<Tiles>(sums, staging, work.row, work.column, first, ending);
    }
  });
  if (stored == 0) kiln::tma_store_wait<0>();  // y is written, and the staging read, before the block ends
}
