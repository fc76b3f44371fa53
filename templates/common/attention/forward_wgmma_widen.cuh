// The warpgroup of attention_wgmma that widens keys and values of 8 bits to q's type, block by block, from where TMA lays
// them down to where wgmma takes them.
//
// Both tiles have the same boxes, but the bytes have no swizzle. So the 16 bytes at x become the 32 at 2 * x, in two
// chunks that the swizzle moves among those of their 128 bytes. A thread takes each 128th 16 bytes, so that its chunks
// move alike in all of them. Eight neighbouring threads read 128 bytes in a row, and write chunks of eight different
// banks.
#pragma once

#include "common/attention/forward_wgmma_tile.cuh"
#include "common/attention/widened.cuh"

namespace kiln::attention {

/// For one thread of the warpgroup: its part of a Tile at `to`, of T, from the bytes of Tile::OfBytes at `from`.
template <typename T, typename Tile>
__device__ __forceinline__ void widen_tile(const char* from, char* to) {
  constexpr int words = Tile::OfBytes::bytes / 16, each = (words + warpgroup - 1) / warpgroup;
  constexpr int together = each < 4 ? each : 4;  // loads under way at once, by registers
  int thread = static_cast<int>(threadIdx.x) % warpgroup;
  asm volatile("" : "+r"(thread));  // ptxas then computes addresses anew for each tile, and keeps no registers for them
  const int moved = (thread * 32 >> 7 & (Tile::swizzle / 16 - 1)) * 16;
  from += thread * 16;
  char *const low = to + (thread * 32 ^ moved), *const high = to + (thread * 32 + 16 ^ moved);
#pragma unroll
  for (int first = 0; first < each; first += together) {
    uint4 bytes[together];
    const auto exists = [&](int i) {
      if (first + i >= each) return false;
      return words % warpgroup == 0 || thread + (first + i) * warpgroup < words;
    };
#pragma unroll
    for (int i = 0; i < together; ++i)
      if (exists(i)) bytes[i] = *reinterpret_cast<const uint4*>(from + (first + i) * warpgroup * 16);
#pragma unroll
    for (int i = 0; i < together; ++i) {
      if (!exists(i)) continue;
      const int at = (first + i) * warpgroup * 32;
      *reinterpret_cast<uint4*>(low + at) = widened_to<T>(make_uint2(bytes[i].x, bytes[i].y));
      *reinterpret_cast<uint4*>(high + at) = widened_to<T>(make_uint2(bytes[i].z, bytes[i].w));
    }
  }
}

/// Widens tiles in the order in which they are taken.
template <typename Tiles>
class TileWidening {
 public:
  __device__ __forceinline__ TileWidening(const SharedLayout<Tiles>& shared, char* memory)
      : shared_(shared), memory_(memory) {}

  __device__ __forceinline__ void keys() {
    widen<typename Tiles::Key>(shared_.copied_keys(copied_keys_at_.slot), copied_keys_at_.parity,
                               shared_.keys(keys_at_.slot), keys_at_.parity);
    copied_keys_at_.advance();
    keys_at_.advance();
  }
  __device__ __forceinline__ void values() {
    widen<typename Tiles::Value>(shared_.copied_values(copied_values_at_.slot), copied_values_at_.parity,
                                 shared_.values(values_at_.slot), values_at_.parity);
    copied_values_at_.advance();
    values_at_.advance();
  }

 private:
  template <typename Tile>
  __device__ __forceinline__ void widen(const Place& from, unsigned from_parity, const Place& to, unsigned to_parity) {
    mbarrier_wait(from.full, from_parity);
    mbarrier_wait(to.empty, to_parity ^ 1);
    widen_tile<typename Tiles::T, Tile>(at(from), at(to));
    fence_proxy_async();
    __syncwarp();
    release(from);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(to.full);
  }
  __device__ __forceinline__ char* at(const Place& place) const { return memory_ + (place.data - shared_.base); }

  SharedLayout<Tiles> shared_;
  char* memory_;
  RingPosition<Tiles::stages> keys_at_, values_at_;
  RingPosition<Tiles::copied_stages> copied_keys_at_, copied_values_at_;
};

/// For the warpgroup, until there is no more work.
template <typename Tiles>
__device__ __forceinline__ void widen_all(const SharedLayout<Tiles>& shared, char* memory, const Work* works,
                                          const Window& window) {
  TileWidening<Tiles> widening(shared, memory);
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
    const KeyBlocks blocks = key_blocks(visible, work.row, last, Tiles::tile_n);
    const int count = blocks.end - blocks.begin;
#pragma unroll 1
    for (int i = 0; i <= count; ++i) {  // keys come one block before their values
      if (i < count) widening.keys();
      if (i > 0) widening.values();
    }
  }
}

}  // namespace kiln::attention
