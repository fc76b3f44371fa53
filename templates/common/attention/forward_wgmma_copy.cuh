// The warp of attention_wgmma that copies: it says which work is next and brings in what that takes.
#pragma once

#include "common/attention/forward_wgmma_tile.cuh"
#include "common/cluster.cuh"
#include "common/elect.cuh"

namespace kiln::attention {

/// What q, k and v are copied from. The maps show them as attention_wgmma's do.
struct TensorMaps {
  const tensor_map *q, *k, *v;
};

/// Waits until a place is empty, announces the bytes that will come, and returns it.
__device__ __forceinline__ Place begun(const Place& place, unsigned parity, unsigned bytes) {
  mbarrier_wait(place.empty, parity ^ 1);
  mbarrier_arrive_expect_tx(place.full, bytes);
  return place;
}

/// Copies blocks of keys and values that are rows of a tensor, by one thread.
template <typename Tiles>
class TensorRows {
 public:
  using From = TensorMaps;
  static constexpr bool by_warp = false;
  static constexpr int registers = Tiles::consumers == 3 ? 32 : 24;

  __device__ __forceinline__ explicit TensorRows(const From&)
      : rank_(Tiles::blocks == 1 ? 0 : static_cast<int>(cluster_block_rank())) {}

  /// Of the block of a sequence's keys or values whose number is `block`. The tile's first query sees keys from `first_seen` on.
  template <typename Tile>
  __device__ __forceinline__ void copy(const Place& to, unsigned parity, const tensor_map* map, const Work& work,
                                       int block, int, int head) const {
    const Place place = begun(to, parity, Tile::bytes);
    const int row = work.of.first_key + block * Tiles::tile_n;
    if constexpr (Tiles::blocks == 1) {
      Tile::load(place.data, map, place.full, head, row, work.of.plane);
    } else {
      Tile::template load_for_all<Tiles::blocks>(place.data, map, place.full, head, row, work.of.plane, rank_);
    }
  }

 private:
  int rank_;
};

/// Copies, in the order in which they are taken: keys come one block before their values. For one thread, or (Rows::by_warp) all lanes of a warp.
template <typename Tiles, typename Rows>
class TileCopies {
 public:
  __device__ __forceinline__ TileCopies(const SharedLayout<Tiles>& shared, const typename Rows::From& from)
      : shared_(shared), maps_{from.q, from.k, from.v}, rows_(from) {}

  __device__ __forceinline__ void copy(const Work& work, const KeyBlocks& blocks, int first_seen, int key_head) {
    if (blocks.end == blocks.begin) return;
    keys(work, blocks.end - 1, first_seen, key_head);
    query(work);
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin; --block) {
      if (block > blocks.begin) keys(work, block - 1, first_seen, key_head);
      if constexpr (Tiles::value_warps == 0) values(work, block, first_seen, key_head);
    }
  }
  /// What copy() leaves to another warp.
  __device__ __forceinline__ void copy_values(const Work& work, const KeyBlocks& blocks, int first_seen, int key_head) {
#pragma unroll 1
    for (int block = blocks.end - 1; block >= blocks.begin; --block) values(work, block, first_seen, key_head);
  }

 private:
  __device__ __forceinline__ void query(const Work& work) {
    if (!Rows::by_warp || threadIdx.x % 32 == 0) {
      const Place place = begun(shared_.query(), query_at_.parity, Tiles::rows * (Tiles::Query::bytes / Tiles::tile_m));
      Tiles::Query::load(place.data, maps_.q, place.full, work.head, work.of.first_query + work.row, work.of.plane);
    }
    query_at_.advance();
  }
  __device__ __forceinline__ void keys(const Work& work, int block, int first_seen, int head) {
    rows_.template copy<typename Tiles::CopiedKey>(shared_.copied_keys(keys_at_.slot), keys_at_.parity, maps_.k, work,
                                                   block, first_seen, head);
    keys_at_.advance();
  }
  __device__ __forceinline__ void values(const Work& work, int block, int first_seen, int head) {
    rows_.template copy<typename Tiles::CopiedValue>(shared_.copied_values(values_at_.slot), values_at_.parity, maps_.v,
                                                     work, block, first_seen, head);
    values_at_.advance();
  }

  SharedLayout<Tiles> shared_;
  TensorMaps maps_;
  Rows rows_;
  RingPosition<1> query_at_;
  RingPosition<Tiles::copied_stages> keys_at_, values_at_;
};

/// For one warp, until there is no more work, which it says too.
template <typename Tiles, typename Rows>
__device__ __forceinline__ void copy_all(const SharedLayout<Tiles>& shared, Work* works,
                                         const typename Rows::From& from, const Sequences& sequences,
                                         const Window& window, int heads, int heads_of_key, TileNumbers numbers,
                                         int section) {
  using Form = typename Tiles::Form;
  TileSearch<Form::layout, Tiles::queries, Side::queries, Tiles::blocks> search(sequences, heads / Tiles::heads,
                                                                                section / Tiles::heads);
  TileCopies<Tiles, Rows> copies(shared, from);
  RingPosition<SharedLayout<Tiles>::works> at;
  const bool elected = elect_one();
  for (;; at.advance(), numbers.advance()) {
    Work work = search.find(numbers.index);
    if constexpr (Tiles::heads > 1) work.head *= Tiles::heads;
    const Place place = shared.works_at(at.slot);
    if (elected) {
      mbarrier_wait(place.empty, at.parity ^ 1);
      works[at.slot] = work;
      mbarrier_arrive(place.full);
    }
    if (work.exists == 0) break;
    const Visible<Form::mask> visible(work.of.queries, work.of.keys, window);
    const int last = min(work.row + Tiles::queries, work.of.queries) - 1;
    if (Rows::by_warp || elected)
      copies.copy(work, key_blocks(visible, work.row, last, Tiles::tile_n), visible.begin(work.row),
                  work.head / heads_of_key);
    __syncwarp();
  }
  numbers.end();
}

/// For the warp that copies values alone, until there is no more work.
template <typename Tiles, typename Rows>
__device__ __forceinline__ void copy_all_values(const SharedLayout<Tiles>& shared, const Work* works,
                                                const typename Rows::From& from, const Window& window,
                                                int heads_of_key) {
  TileCopies<Tiles, Rows> copies(shared, from);
  RingPosition<SharedLayout<Tiles>::works> at;
#pragma unroll 1
  for (;; at.advance()) {
    const Place place = shared.works_at(at.slot);
    mbarrier_wait(place.full, at.parity);
    const Work work = agreed(works[at.slot]);
    release(place);
    if (work.exists == 0) return;
    const Visible<Tiles::Form::mask> visible(work.of.queries, work.of.keys, window);
    const int last = min(work.row + Tiles::queries, work.of.queries) - 1;
    copies.copy_values(work, key_blocks(visible, work.row, last, Tiles::tile_n), visible.begin(work.row),
                       work.head / heads_of_key);
  }
}

}  // namespace kiln::attention
