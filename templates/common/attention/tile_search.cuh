// Which tiles of queries, or of keys, a block takes, in which order.
#pragma once

#include "common/attention/problem.cuh"
#include "common/reduce.cuh"

namespace kiln::attention {

/// What a block does next: the queries (or keys) of a sequence from `row` on, of one head, or of as many as a tile has from `head` on. As two words of 16 bytes.
struct alignas(16) Work {
  Sequence of;
  int head, row;
  int exists;  // 0: there is no more
};
static_assert(sizeof(Work) == 32);

/// Returns the work, which is equal in all lanes, so that the compiler sees that they agree.
__device__ __forceinline__ Work agreed(const Work& work) {
  const auto most = [](int value) { return __reduce_max_sync(full_warp, value); };
  return {{most(work.of.plane), most(work.of.first_query), most(work.of.first_key), most(work.of.queries),
           most(work.of.keys)},
          most(work.head),
          most(work.row),
          most(work.exists)};
}

/// Whose rows tiles are of.
enum class Side { queries, keys };

/// Heads of a sequence, or (dense) of all, in sections: their other side stays in L2. In each section tiles go by their
/// place in the sequence. The last queries or the first keys come first, since with a causal mask they take longest.
/// Within a place, head by head.
template <Side side>
struct TileOrder {
  int planes, section;

  struct At {
    int plane, tile;
  };
  __device__ __forceinline__ At at(int index, int tiles) const {
    const int in_section = section * tiles, first = index / in_section * section;
    const int within = index - first * tiles, width = min(section, planes - first), place = within / width;
    return {first + within - place * width, side == Side::queries ? tiles - 1 - place : place};
  }
};

/// Finds the tiles of sequences by their numbers, which rise. All lanes of a warp call it together. A head has a multiple of `blocks` tiles
/// (dense), the last ones past its rows.
template <Layout layout, int tile, Side side, int blocks = 1>
class TileSearch {
 public:
  __device__ __forceinline__ TileSearch(const Sequences& sequences, int heads, int section)
      : sequences_(sequences), heads_(heads), section_(section) {}

  __device__ __forceinline__ Work find(int index) {
    if constexpr (layout == Layout::dense) {
      return dense(index);
    } else {
      return packed(index);
    }
  }

 private:
  static __device__ __forceinline__ int tiles_of(const Sequence& of) {
    return ceil_div(side == Side::queries ? of.queries : of.keys, tile);
  }
  __device__ __forceinline__ Work packed(int index) {
    while (first_ < sequences_.count) {
      const int sequence = first_ + static_cast<int>(threadIdx.x) % 32;
      const int tiles = sequence < sequences_.count ? tiles_of(sequences_.template at<layout>(sequence)) * heads_ : 0;
      int end = before_ + tiles;  // of this lane's sequence
#pragma unroll
      for (int by = 1; by < 32; by *= 2) {
        const int left = __shfl_up_sync(full_warp, end - before_, by);
        if (static_cast<int>(threadIdx.x) % 32 >= by) end += left;
      }
      const unsigned past = __ballot_sync(full_warp, index < end);
      if (past != 0) {
        const int lane = __ffs(static_cast<int>(past)) - 1;
        return in_sequence(first_ + lane, index - __shfl_sync(full_warp, end - tiles, lane));
      }
      before_ = __shfl_sync(full_warp, end, 31);
      first_ += 32;
    }
    return {};
  }
  __device__ __forceinline__ Work dense(int index) const {
    const int tiles = ceil_div(side == Side::queries ? sequences_.queries : sequences_.keys, tile * blocks) * blocks,
              planes = sequences_.count * heads_;
    if (index >= planes * tiles) return {};
    const auto at = TileOrder<side>{planes, section_}.at(index, tiles);
    const int sequence = at.plane / heads_;
    return {sequences_.template at<layout>(sequence), at.plane - sequence * heads_, at.tile * tile, 1};
  }
  __device__ __forceinline__ Work in_sequence(int sequence, int index) const {
    const Sequence of = sequences_.template at<layout>(sequence);
    const auto at = TileOrder<side>{heads_, section_}.at(index, tiles_of(of));
    return {of, at.plane, at.tile * tile, 1};
  }

  Sequences sequences_;
  int heads_, section_;
  int first_ = 0, before_ = 0;  // the sequence of lane 0, and the tiles of those before it
};

/// The numbers of a block's tiles: its own, and then every gridDim.x-th or (`drawn`) the next that no other block has drawn.
struct TileNumbers {
  unsigned* counters;  // two, zero before and after: tiles drawn, blocks that have ended
  bool drawn;
  int index;

  __device__ __forceinline__ TileNumbers(unsigned* counters_given, bool draws)
      : counters(counters_given), drawn(draws), index(static_cast<int>(blockIdx.x)) {}

  /// All lanes of a warp call it together.
  __device__ __forceinline__ void advance() {
    if (!drawn) {
      index += static_cast<int>(gridDim.x);
      return;
    }
    unsigned next = 0;
    if (threadIdx.x % 32 == 0) next = gridDim.x + atomicAdd(counters, 1u);
    index = static_cast<int>(__shfl_sync(full_warp, next, 0));
  }
  /// After the block's last; the last block resets the counters.
  __device__ __forceinline__ void end() const {
    if (!drawn || threadIdx.x % 32 != 0) return;
    __threadfence();
    if (atomicInc(counters + 1, gridDim.x - 1) == gridDim.x - 1) *counters = 0;
  }
};

}  // namespace kiln::attention
