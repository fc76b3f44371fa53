// The warp of attention_context_fused that copies. One of its threads waits for what it copies.
#pragma once

#include "common/attention/forward_wgmma_copy.cuh"
#include "segments.cuh"

namespace kiln::attention {

/// Maps of q, k and v as [sequences, rows, heads, columns], and of the parts of all ranks as [ranks, tokens, heads,
/// columns].
struct ContextMaps {
  const tensor_map *q, *k, *v, *keys, *values;
};

template <typename Tiles, int World>
class SegmentCopies {
 public:
  __device__ __forceinline__ SegmentCopies(const SharedLayout<Tiles>& shared, const ContextMaps& maps,
                                           const Segments<World, Tiles::Form::mask>& segments,
                                           const team::Arrivals<World>& arrivals, ContextShared* its, int chunk_rows)
      : shared_(shared), maps_(maps), segments_(segments), arrivals_(arrivals), its_(its), chunk_rows_(chunk_rows) {}

  /// In the order in which blocks are taken: keys come one block before their values. For one thread.
  __device__ __forceinline__ void copy(const Work& work, int key_head) {
    At next = at(work, 0);
    keys(next, key_head);
    query(work);
#pragma unroll 1
    for (;;) {
      const At now = next;
      const bool more = advance(work, next);
      if (more) keys(next, key_head);
      values(now, key_head);
      if (!more) return;
    }
  }

 private:
  /// A block of keys, as the maps have it.
  struct At {
    int segment, block, plane, first, keys;
  };

  /// The first of a segment's blocks, which is its last one.
  __device__ __forceinline__ At at(const Work& work, int segment) const {
    const int keys = segments_.keys(segment), rank = segments_.rank_of(segment);
    const KeyBlocks blocks = segments_.template blocks<Tiles::tile_m, Tiles::tile_n>(segment, keys, work.row);
    return {segment, blocks.end - 1, segment == 0 ? work.of.plane : rank, segment == 0 ? 0 : work.of.plane * keys,
            keys};
  }
  __device__ __forceinline__ bool advance(const Work& work, At& next) const {
    if (--next.block >= 0) return true;
    if (next.segment + 1 == segments_.count()) return false;
    next = at(work, next.segment + 1);
    return true;
  }
  /// Waits for the block's rows, chunk by chunk, unless they were there before.
  __device__ __forceinline__ void await(const At& of) {
    if (of.segment == 0) return;
    const int first = of.first + of.block * Tiles::tile_n;
    const int end = of.first + min((of.block + 1) * Tiles::tile_n, of.keys);
#pragma unroll 1
    for (int chunk = first / chunk_rows_; chunk * chunk_rows_ < end; ++chunk) {
      unsigned& word = its_->came[of.plane][chunk / 32];
      if ((word >> chunk % 32 & 1) == 0 && arrivals_.await(of.plane, chunk * chunk_rows_, chunk * chunk_rows_ + 1))
        word |= 1u << chunk % 32;
    }
  }

  __device__ __forceinline__ void query(const Work& work) {
    const Place place = begin(shared_.query(), query_at_.parity, Tiles::Query::bytes);
    Tiles::Query::load(place.data, maps_.q, place.full, work.head, work.row, work.of.plane);
    query_at_.advance();
  }
  __device__ __forceinline__ void keys(const At& of, int head) {
    await(of);
    const Place place = begin(shared_.keys(keys_at_.slot), keys_at_.parity, Tiles::Key::bytes);
    Tiles::Key::load(place.data, of.segment == 0 ? maps_.k : maps_.keys, place.full, head,
                     of.first + of.block * Tiles::tile_n, of.plane);
    keys_at_.advance();
  }
  __device__ __forceinline__ void values(const At& of, int head) {
    const Place place = begin(shared_.values(values_at_.slot), values_at_.parity, Tiles::Value::bytes);
    Tiles::Value::load(place.data, of.segment == 0 ? maps_.v : maps_.values, place.full, head,
                       of.first + of.block * Tiles::tile_n, of.plane);
    values_at_.advance();
  }
  static __device__ __forceinline__ Place begin(const Place& place, unsigned parity, unsigned bytes) {
    mbarrier_wait(place.empty, parity ^ 1);
    mbarrier_arrive_expect_tx(place.full, bytes);
    return place;
  }

  SharedLayout<Tiles> shared_;
  ContextMaps maps_;
  const Segments<World, Tiles::Form::mask>& segments_;
  const team::Arrivals<World>& arrivals_;
  ContextShared* its_;
  int chunk_rows_;
  RingPosition<1> query_at_;
  RingPosition<Tiles::stages> keys_at_, values_at_;
};

/// For one warp, until there is no more work, which it says too. Tiles are drawn by `counter`, 0 before the launch.
template <typename Tiles, int World>
__device__ __forceinline__ void copy_segments(const SharedLayout<Tiles>& shared, Work* works,
                                              SegmentCopies<Tiles, World>& copies, const Sequences& sequences,
                                              int heads, int heads_of_key, unsigned* counter, int section) {
  TileSearch<Layout::dense, Tiles::tile_m, Side::queries> search(sequences, heads, section);
  RingPosition<SharedLayout<Tiles>::works> at;
  const bool elected = elect_one();
#pragma unroll 1
  for (;; at.advance()) {
    unsigned drawn = 0;
    if (threadIdx.x % 32 == 0) drawn = atomicAdd(counter, 1u);
    const Work work = search.find(static_cast<int>(__shfl_sync(full_warp, drawn, 0)));
    const Place place = shared.works_at(at.slot);
    if (elected) {
      mbarrier_wait(place.empty, at.parity ^ 1);
      works[at.slot] = work;
      mbarrier_arrive(place.full);
      if (work.exists != 0) copies.copy(work, work.head / heads_of_key);
    }
    __syncwarp();
    if (work.exists == 0) return;
  }
}

}  // namespace kiln::attention
