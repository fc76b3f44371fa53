// Products for other ranks, tile by tile: pushed to the ranks that they are for, which add them to their own.
//
// All ranks run the same config, so that a tile lies in its owner's workspace as threads hold its sums, in 16 bits. It comes to who adds it
// as stages of the ring do, as SharedTiles of common/gemm/wgmma_parts.cuh.
#pragma once

#include "common/gemm/wgmma_block.cuh"
#include "common/team/gemm_arrivals.cuh"

namespace kiln::team {

/// Tiles of the products for all ranks, a plane each: bands of rows of the peers' in turns, then this rank's own. A tile for a peer has its
/// number in that peer's part as slot; own ones have World - 1 others. Tiles past a shorter part have neither.
///
/// Blocks of a cluster take neighbouring tiles, and as many stages each, for they load for each other. A block whose tile lies past the last
/// row or column passes through these stages too, and stores nothing.
template <typename Tiles, int World>
class ScatterSchedule {
 public:
  __device__ __forceinline__ ScatterSchedule(const PartRows& rows, long long n, long long k, int band)
      : rows_(rows),
        block_(Tiles::cluster == 1 ? 0 : static_cast<int>(cluster_block_rank())),
        columns_(static_cast<int>(n)),
        tiles_n_(ceil_div(columns_, Tiles::tile_n * Tiles::cluster_n)),
        k_tiles_(ceil_div(static_cast<int>(k), Tiles::tile_k)),
        band_(band),
        peer_tiles_(ceil_div(rows.longest_of_peers<World>(), high)),
        own_tiles_(ceil_div(rows.own, high)) {}

  __device__ __forceinline__ int first() const { return static_cast<int>(blockIdx.x) / Tiles::cluster; }
  __device__ __forceinline__ int step() const { return static_cast<int>(gridDim.x) / Tiles::cluster; }
  __device__ __forceinline__ int count() const { return (peer_tiles_ * peers + own_tiles_) * tiles_n_; }

  __device__ __forceinline__ gemm::WgmmaWork at(int index) const {
    const int of_peers = peer_tiles_ * peers * tiles_n_;
    if (index >= of_peers) {
      const gemm::TileIndex tile = of_block(gemm::tile_in_bands(index - of_peers, own_tiles_, tiles_n_, band_));
      gemm::WgmmaWork work = work_at(tile, rows_.rank, rows_.own);
      work.others = peers;
      return work;
    }
    const unsigned full = static_cast<unsigned>(band_ * tiles_n_ * peers), band = static_cast<unsigned>(index) / full;
    const unsigned height = min(band_, peer_tiles_ - static_cast<int>(band) * band_);
    const unsigned within = static_cast<unsigned>(index) - band * full, peer = within / (height * tiles_n_);
    const unsigned of_peer = within - peer * (height * tiles_n_), column = of_peer / height;
    const gemm::TileIndex tile =
        of_block({static_cast<int>(band * band_ + of_peer - column * height), static_cast<int>(column)});
    const int plane = following<World>(rows_.rank, static_cast<int>(peer) + 1), rows = rows_.of(plane);
    gemm::WgmmaWork work = work_at(tile, plane, rows);
    if (work.row < rows && (Tiles::cluster_n == 1 || work.column < columns_))
      work.slot = tile.m * tiles_of_row() + tile.n;
    return work;
  }

 private:
  static constexpr int peers = World - 1, high = Tiles::tile_m * Tiles::cluster_m;

  static __device__ __forceinline__ int ceil_div(int a, int b) {
    return static_cast<int>((static_cast<unsigned>(a) + static_cast<unsigned>(b) - 1) / static_cast<unsigned>(b));
  }
  __device__ __forceinline__ gemm::TileIndex of_block(gemm::TileIndex of_cluster) const {
    return {of_cluster.m * Tiles::cluster_m + (Tiles::cluster_m == 1 ? 0 : block_),
            of_cluster.n * Tiles::cluster_n + (Tiles::cluster_n == 1 ? 0 : block_)};
  }
  __device__ __forceinline__ int tiles_of_row() const {
    return Tiles::cluster_n == 1 ? tiles_n_ : ceil_div(columns_, Tiles::tile_n);
  }
  __device__ __forceinline__ gemm::WgmmaWork work_at(gemm::TileIndex tile, int plane, int rows) const {
    const int row = tile.m * Tiles::tile_m, of_cluster = row - (Tiles::cluster_m == 1 ? 0 : block_ * Tiles::tile_m);
    return gemm::copied_inside<Tiles>(
        {row, tile.n * Tiles::tile_n, 0, of_cluster < rows ? k_tiles_ : 1, 0, rows, plane}, columns_);
  }

  PartRows rows_;
  int block_, columns_;
  int tiles_n_;  // of the cluster, as those along m
  int k_tiles_, band_, peer_tiles_, own_tiles_;
};

/// How tiles get to other ranks and back: takes the place of SharedTiles. `slots`: in each rank's workspace [sending rank][tiles], a tile as
/// [warpgroups that share it][pairs of fragments][128 threads] of 8 sums.
template <typename T, typename Tiles, int World>
struct ScatteredTiles {
  static constexpr bool any = true;
  static_assert(!Tiles::pingpong && !Tiles::swap && sizeof(T) == 2);

  const Team& team;
  const Peers& slots;
  const Epoch& epoch;
  const Arrivals<World>& arrivals;
  ArrivalStorage* shared;
  PartRows rows;
  int chunk_rows, tiles_n, tiles_of_rank;
  mutable int pending_rank = -1, pending_chunk = 0;  // of the tile that was pushed last and is not counted yet

  static __device__ __forceinline__ int stages(const gemm::WgmmaWork& work) {
    return work.k_tiles + work.others * stages_of_part;
  }

  /// Registers: the first warpgroup pushes nothing here, and needs fewer than gather_block's does.
  static __device__ __forceinline__ void take_registers(bool produces) {
    if constexpr (warpgroups == 2) {
      if (produces) {
        setmaxnreg_dec<40>();
      } else {
        setmaxnreg_inc<232>();
      }
    }
  }

  /// Pushes what a warpgroup holds of a tile for a peer, whose rows begin at `first`.
  __device__ __forceinline__ void hand_over(const gemm::WgmmaWork& work, int first,
                                            const gemm::WgmmaSums<Tiles>& sums) const {
    settle();
    if (shared->failed != 2) {
      uint4* const to = reinterpret_cast<uint4*>(slot(work.plane, team.rank, work.slot)) +
                        static_cast<long long>(warpgroup_of(first)) * count * gemm::warpgroup +
                        gemm::warpgroup_thread();
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const float* const eight = &sums[i / of_product][i % of_product * 8];
        const vec<float, 8> values = {eight[0], eight[1], eight[2], eight[3], eight[4], eight[5], eight[6], eight[7]};
        __stwb(to + i * gemm::warpgroup, __builtin_bit_cast(uint4, from_floats<T, 8>(values)));
      }
    }
    gemm::warpgroup_sync();
    pending_rank = work.plane;
    pending_chunk = work.row / chunk_rows;
  }

  /// Counts the tile that this warpgroup pushed last. A chunk's last tile is followed by its flag. Not at once: by now nothing has to be waited
  /// for before the flag may follow the tile.
  __device__ __forceinline__ void settle() const {
    if (pending_rank < 0) return;
    if (gemm::warpgroup_thread() == 0) {
      const int rows_to = rows.of(pending_rank), in_chunk = min(rows_to - pending_chunk * chunk_rows, chunk_rows);
      const unsigned last =
          static_cast<unsigned>((in_chunk + Tiles::tile_m - 1) / Tiles::tile_m * tiles_n * warpgroups) - 1;
      __threadfence_system();
      if (atomicInc(&team.control[team.rank]->pushed[pending_rank][pending_chunk], last) == last &&
          shared->failed != 2) {
        __threadfence_system();
        epoch.send(pending_rank, pending_chunk, rows_to);
      }
    }
    pending_rank = -1;
  }

  /// Waits for the peers' tiles of an own one and copies them to the ring, in the order of the ranks. For the thread that copies stages. Each
  /// block of a cluster copies those of its own tile.
  __device__ __forceinline__ void copy(const gemm::Ring<Tiles>& ring, gemm::RingPosition<Tiles::stages>& at,
                                       const gemm::WgmmaWork& work) const {
    if (work.others == 0) return;
    if constexpr (Tiles::shares > 1) {
      if (work.row >= work.rows || work.column >= tiles_n * Tiles::tile_n) return copy_nothing(ring, at, work);
    }
    mbarrier_wait(&shared->counted);
    const int tile = work.row / Tiles::tile_m * tiles_n + work.column / Tiles::tile_n;
#pragma unroll 1
    for (int peer = 0; peer < World; ++peer) {
      if (peer == team.rank) continue;
      if (shared->rows_of[peer] < 0 || shared->rows_of[peer] > work.row) arrivals.await(peer, work.row, work.row + 1);
      const char* const from = slot(team.rank, peer, tile);
#pragma unroll 1
      for (int begin = 0; begin < count; begin += of_stage, at.advance()) {
        const int bytes = gemm::least_of(of_stage, count - begin) * pair_bytes;
        const unsigned stage = ring.stage(at.slot), full = ring.full(at.slot);
        mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
        mbarrier_arrive_expect_tx(full, warpgroups * bytes);
#pragma unroll 1
        for (int i = 0; i < warpgroups; ++i)
          bulk_load(stage + i * of_stage * pair_bytes, from + (i * count + begin) * pair_bytes, bytes, full);
      }
    }
  }

  /// Adds them to an own tile, from the ring at `at` on. Rows that a peer did not send count as 0.
  __device__ __forceinline__ void add(const gemm::Ring<Tiles>& ring, gemm::RingPosition<Tiles::stages>& at,
                                      const gemm::WgmmaWork& work, int first, gemm::WgmmaSums<Tiles>& sums) const {
    settle();
    if (work.others == 0) return;
    mbarrier_wait(&shared->counted);
    const int mine = warpgroup_of(first) * of_stage * pair_bytes + gemm::warpgroup_thread() * 16;
    const int row = work.row + first + gemm::warpgroup_thread() / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll 1
    for (int peer = 0; peer < World; ++peer) {
      if (peer == team.rank) continue;
      const int sent = *static_cast<const volatile int*>(&shared->rows_of[peer]);
#pragma unroll
      for (int begin = 0; begin < count; begin += of_stage) {
        mbarrier_wait(ring.full(at.slot), at.parity);
        const char* const from = dynamic_shared() + at.slot * Tiles::stage_bytes + mine;
#pragma unroll
        for (int i = begin; i < gemm::least_of(begin + of_stage, count); ++i) {
          const vec<float, 8> more = to_floats<T, 8>(*reinterpret_cast<const uint4*>(from + (i - begin) * pair_bytes));
          float* const eight = &sums[i / of_product][i % of_product * 8];
          const int upper = row + i / of_product * gemm::wgmma_rows;
#pragma unroll
          for (int j = 0; j < 8; ++j) eight[j] += upper + (j & 2) * 4 < sent ? more.at[j] : 0.0f;
        }
        __syncwarp();
        ring.release(at.slot);  // ordinary reads: those of shared memory are done before an arrival that follows them
        at.advance();
      }
    }
  }

 private:
  /// The stages of a tile past the last row or column, which the other block of the cluster counts as its own. What they hold is not stored.
  __device__ __forceinline__ void copy_nothing(const gemm::Ring<Tiles>& ring, gemm::RingPosition<Tiles::stages>& at,
                                               const gemm::WgmmaWork& work) const {
#pragma unroll 1
    for (int i = work.k_tiles; i < stages(work); ++i, at.advance()) {
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
      mbarrier_arrive(ring.full(at.slot));
    }
  }

  static constexpr int warpgroups = Tiles::consumers;
  static constexpr int of_product = Tiles::B::extent / 16,
                       count = Tiles::row_blocks * of_product;  // pairs of fragments
  static constexpr int pair_bytes = gemm::warpgroup * 16;
  static constexpr int most_of_stage = Tiles::stage_bytes / (warpgroups * pair_bytes);
  static constexpr int stages_of_part = (count + most_of_stage - 1) / most_of_stage;
  static constexpr int of_stage = (count + stages_of_part - 1) / stages_of_part;
  static_assert(most_of_stage > 0 && (count + of_stage - 1) / of_stage == stages_of_part);

  static __device__ __forceinline__ int warpgroup_of(int first) {
    return first / (gemm::wgmma_rows * Tiles::row_blocks);
  }
  /// In the workspace of `at`: a tile that `from` pushes.
  __device__ __forceinline__ char* slot(int at, int from, int tile) const {
    return reinterpret_cast<char*>(slots.of[at] + epoch.half()) +
           (static_cast<long long>(from) * tiles_of_rank + tile) * (Tiles::tile_m * Tiles::tile_n * 2);
  }
};

}  // namespace kiln::team
