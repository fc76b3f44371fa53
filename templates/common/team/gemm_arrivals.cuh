// Rows that arrive from peers while a block multiplies: who waits for them, and how the rest of the block is told.
#pragma once

#include "common/bulk_copy.cuh"
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/team/gemm_parts.cuh"

namespace kiln::team {

/// The flag that says how many rows a rank has; those before it are of chunks.
inline constexpr int rows_flag = flags_per_epoch - 1;

/// What the threads of a block tell each other, in shared memory.
struct ArrivalStorage {
  unsigned long long counted;  // a barrier: rows_of is known
  static constexpr int counted_bytes = most_ranks * 4;
  unsigned long long copied[2];  // barriers: a piece has come to shared memory
  Epoch::storage epoch;
  int rows_of[most_ranks];  // -1 where unknown
  int failed;  // 1 from the first failed wait on: peers' rows are NaN; 2 where the launch began so: all are

  /// Makes `counted` ready for one count<blocks>(). For one thread.
  template <int blocks>
  __device__ __forceinline__ void open() {
    if constexpr (blocks > 1) {
      mbarrier_expect(&counted, counted_bytes);
    } else {
      mbarrier_init(shared_address(&counted), 1);
      fence_mbarrier_init();
    }
  }
};

/// How many rows each rank has, of which others than its own a block hears in the course of a launch.
struct ArrivingRows {
  ArrivalStorage* shared;
  int rank, own;  // this rank and its rows
  int most;       // that y has room for, of each rank

  /// After longest_of_peers().
  __device__ __forceinline__ int of(int each) const {
    if (each == rank) return own;
    const int count = *static_cast<const volatile int*>(&shared->rows_of[each]);
    return count < 0 ? most : min(count, most);
  }
  /// Waits until they are known.
  template <int World>
  __device__ __forceinline__ int longest_of_peers() const {
    mbarrier_wait(&shared->counted);
    int longest = 0;
#pragma unroll
    for (int i = 1; i < World; ++i) longest = max(longest, of(following<World>(rank, i)));
    return longest;
  }
};

/// Waits for peers' rows. For one thread of the block.
template <int World>
class Arrivals {
 public:
  __device__ __forceinline__ Arrivals(const Epoch& epoch, const Team& team, ArrivalStorage* shared, int chunk_rows)
      : epoch_(epoch), team_(team), shared_(shared), chunk_rows_(chunk_rows) {}

  /// Hears from all peers, and tells the `blocks` blocks of the cluster, which must all know the same. A block of no cluster tells itself by
  /// plain stores: PTX defines st.async for clusters of several blocks alone, and elsewhere it may end the launch.
  template <int blocks>
  __device__ __forceinline__ void count() const {
#pragma unroll 1
    for (int rank = 0; rank < most_ranks; rank += 2) {
      const int first = rows_of(rank), second = rows_of(rank + 1);
      if constexpr (blocks == 1) {
        shared_->rows_of[rank] = first;
        shared_->rows_of[rank + 1] = second;
      } else {
        const float2 pair = {__uint_as_float(static_cast<unsigned>(first)),
                             __uint_as_float(static_cast<unsigned>(second))};
#pragma unroll 1
        for (int block = 0; block < blocks; ++block)
          st_async(mapa(&shared_->rows_of[rank], block), pair, mapa(&shared_->counted, block));
      }
    }
    if constexpr (blocks == 1) mbarrier_arrive(shared_address(&shared_->counted));
  }

  /// Waits for rows [first, end) of `peer`, for copies that this thread then starts. False where they did not come.
  __device__ __forceinline__ bool await(int peer, int first, int end) const {
    bool came = true;
#pragma unroll 1
    for (int chunk = first / chunk_rows_; came && chunk * chunk_rows_ < end; ++chunk)
      came = shared_->failed == 0 && shared_->rows_of[peer] >= 0 && epoch_.await(peer, chunk) >= 0;
    if (!came) fail();
    fence_proxy_async_global();
    return came;
  }

 private:
  __device__ __forceinline__ int rows_of(int rank) const {
    if (rank == team_.rank || rank >= World) return 0;
    const int rows = shared_->failed != 0 ? -1 : epoch_.await(rank, rows_flag);
    if (rows < 0) fail();
    return rows;
  }
  __device__ __forceinline__ void fail() const {
    if (shared_->failed == 0) *static_cast<volatile int*>(&shared_->failed) = 1;
  }

  const Epoch& epoch_;
  const Team& team_;
  ArrivalStorage* shared_;
  int chunk_rows_;
};

}  // namespace kiln::team
