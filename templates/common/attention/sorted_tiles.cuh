// Tiles of packed sequences in the order of how long they take.
#pragma once

#include "common/attention/tile_search.cuh"

namespace kiln::attention {

/// Finds the tiles of at most 32 packed sequences, those that take longest first, whichever sequence they are of.
/// Multiprocessors then end together also where one sequence is long among short ones. Under a causal mask, a tile
/// takes as long as its place from the sequence's cheap end says. Else it takes as long as its sequence has tiles on
/// the other side. All lanes of a warp make one and call it together.
template <int tile, Side side, bool falls>
class SortedTiles {
 public:
  static constexpr int most_sequences = 32;

  __device__ __forceinline__ SortedTiles(const Sequences& sequences, int heads) : sequences_(sequences), heads_(heads) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane >= sequences.count) return;
    const Sequence of = sequences.template at<Layout::packed>(lane);
    tiles_ = ceil_div(side == Side::queries ? of.queries : of.keys, tile);
    longest_ = falls ? tiles_ : max(ceil_div(side == Side::queries ? of.keys : of.queries, tile), 1);
  }

  __device__ __forceinline__ Work find(int index) const {
    int low = 0, high = __reduce_max_sync(full_warp, longest_);  // of all tiles, index + 1 or more take `low` at least
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (sum(from(middle)) > index)
        low = middle;
      else
        high = middle - 1;
    }
    if (low == 0) return {};  // no tile takes less than 1
    const int within = index - sum(from(low + 1)), own = from(low) - from(low + 1);
    int end = own;  // of this lane's, among tiles that take as long
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
      const int left = __shfl_up_sync(full_warp, end, by);
      if (static_cast<int>(threadIdx.x) % 32 >= by) end += left;
    }
    const int lane = __ffs(static_cast<int>(__ballot_sync(full_warp, within < end))) - 1;
    const int in_sequence = within - __shfl_sync(full_warp, end - own, lane),
              tiles = __shfl_sync(full_warp, tiles_, lane);
    const int place = falls ? tiles - low : in_sequence / heads_;
    return {sequences_.template at<Layout::packed>(lane), in_sequence % heads_,
            (side == Side::queries ? tiles - 1 - place : place) * tile, 1};
  }

 private:
  /// Tiles of this lane's sequence that take `long_at_least` or more.
  __device__ __forceinline__ int from(int long_at_least) const {
    return longest_ < long_at_least ? 0 : (falls ? tiles_ - long_at_least + 1 : tiles_) * heads_;
  }
  static __device__ __forceinline__ int sum(int of_lane) { return __reduce_add_sync(full_warp, of_lane); }

  Sequences sequences_;
  int heads_, tiles_ = 0, longest_ = 0;
};

/// The work of block `index`: sorted where `section` is 0 and the sequences are few, else by sections of so many heads.
template <Layout layout, Mask mask, int tile, Side side>
__device__ __forceinline__ Work find_work(const Sequences& sequences, int heads, int section, int index) {
  if constexpr (layout == Layout::packed) {
    using Sorted = SortedTiles<tile, side, mask == Mask::causal>;
    if (section == 0 && sequences.count <= Sorted::most_sequences) return Sorted(sequences, heads).find(index);
  }
  TileSearch<layout, tile, side> search(sequences, heads, section == 0 ? heads : section);
  return search.find(index);
}

}  // namespace kiln::attention
