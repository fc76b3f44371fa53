// Tiles of products that all ranks add up, for few bytes: words travel as packets (packets.cuh), which no flag follows. Each thread sends what it
// holds to the same thread of every peer, as gemm_reduce.cuh has it, and polls what it receives.
#pragma once

#include "common/team/gemm_reduce.cuh"
#include "common/team/packets.cuh"

namespace kiln::team {

__device__ __forceinline__ uint2 load_relaxed_system(const uint2* from) {
  uint2 word;
  asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];" : "=r"(word.x), "=r"(word.y) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ void store_relaxed_system(uint2* to, const uint2& word) {
  asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(word.x), "r"(word.y) : "memory");
}
__device__ __forceinline__ uint2 sealed(const uint2& word) { return make_uint2(sealed(word.x), sealed(word.y)); }
__device__ __forceinline__ uint2 opened(const uint2& packet) { return make_uint2(~packet.x, ~packet.y); }
__device__ __forceinline__ bool is_whole(const uint2& packet) { return packet.x != 0 && packet.y != 0; }

/// A tile's words as packets, which hold [sending rank][tile][word].
template <typename Words, int World>
struct PacketTile {
  using Word = typename Words::Word;
  using Packet = typename gemm::detail::choose<(sizeof(Word) == 16), uint4, uint2>::type;
  const Packets& packets;
  unsigned tile;
  int words;  // of a tile

  __device__ __forceinline__ void push(const Words& held, const Word (&own)[Words::count]) const {
    const int rank = packets.team.rank;
#pragma unroll
    for (int i = 0; i < Words::count; ++i) {
      if (!held.has(i)) continue;
      const Packet packet = sealed(__builtin_bit_cast(Packet, own[i]));
#pragma unroll
      for (int step = 1; step < World; ++step)
        store_relaxed_system(slot(following<World>(rank, step), rank) + held.place(i), packet);
    }
  }

  /// As ExchangedTile::add(), when the packets have come. Leaves 0 in their place for the next launch but one. Returns false where the launch
  /// has failed.
  template <typename T>
  __device__ __forceinline__ bool add(const Words& held, const int (&rows_of)[World], Word (&own)[Words::count]) const {
    constexpr int batch = words_at_once<World>;
    const int rank = packets.team.rank;
    unsigned long long begun = 0;
    bool failed = false;
#pragma unroll
    for (int first = 0; first < Words::count; first += batch) {
      constexpr int all = batch * World;
      static_assert(all <= 32);
      Packet came[batch][World] = {};
      unsigned awaited = 0;
#pragma unroll
      for (int i = 0; i < all; ++i) {
        const int word = first + i / World, of = i % World;
        if (word < Words::count) awaited |= static_cast<unsigned>(of != rank && held.has(word, rows_of[of])) << i;
      }
      unsigned missing = awaited;
#pragma unroll 1
      for (unsigned polls = 1; missing != 0; ++polls) {
#pragma unroll
        for (int i = 0; i < all; ++i) {
          if ((missing >> i & 1) != 0)
            came[i / World][i % World] = load_relaxed_system(slot(rank, i % World) + held.place(first + i / World));
        }
#pragma unroll
        for (int i = 0; i < all; ++i) {
          if (is_whole(came[i / World][i % World])) missing &= ~(1u << i);
        }
        if (missing != 0 && polls % 32 == 0 &&
            packets.has_to_end(polls, begun, (__ffs(static_cast<int>(missing)) - 1) % World))
          failed = true;
        if (failed) break;  // no return, for the warp's other lanes
      }
#pragma unroll
      for (int i = 0; i < all; ++i) {
        if (!failed && (awaited >> i & 1) != 0)
          store_relaxed_system(slot(rank, i % World) + held.place(first + i / World), Packet{});
      }
#pragma unroll
      for (int i = first; i < gemm::least_of(first + batch, Words::count); ++i) {
        Word parts[World];
#pragma unroll
        for (int of = 0; of < World; ++of)
          parts[of] = of == rank ? own[i] : __builtin_bit_cast(Word, opened(came[i - first][of]));
        own[i] = sum_of_parts<T, World>(held, i, parts, rows_of);
      }
      __syncwarp();  // no more words than these at once: registers
    }
    return !failed;
  }

 private:
  /// In the packets of `at`: what `from` sends of the tile.
  __device__ __forceinline__ Packet* slot(int at, int from) const {
    return reinterpret_cast<Packet*>(packets.place<World>(at, from)) + tile * static_cast<unsigned long long>(words);
  }
};

}  // namespace kiln::team
