// Words that tell by themselves that they came: packets. A word of 16 bytes is stored to a peer's memory that is 0 until then, and none of its
// four parts is 0. So no flag follows data, which would wait until they are there. For few bytes, in one exchange.
//
// Packets lie behind the two halves, where nothing else is stored: see protocol.cuh, 7.
#pragma once

#include "common/length.cuh"
#include "common/team/chunks.cuh"
#include "common/team/copy.cuh"
#include "common/vector.cuh"

namespace kiln::team {

inline constexpr int packet_bytes = 8 << 20;    // for each parity of the epoch: src/team/protocol.hpp
inline constexpr int control_bytes = 64 << 10;  // before the halves

__device__ __forceinline__ uint4 load_relaxed_system(const uint4* from) {
  uint4 word;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(from)
               : "memory");
  return word;
}
__device__ __forceinline__ void store_relaxed_system(uint4* to, const uint4& word) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.x), "r"(word.y), "r"(word.z),
               "r"(word.w)
               : "memory");
}
__device__ __forceinline__ void store_relaxed_system(unsigned long long* flag, unsigned long long value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

/// As a word travels: inverted, so that 0 is what a NaN of all ones becomes. That one travels as another NaN. Sums of the two are alike.
__device__ __forceinline__ unsigned sealed(unsigned part) { return part == ~0u ? 1u << 31 : ~part; }
__device__ __forceinline__ uint4 sealed(const uint4& word) {
  return make_uint4(sealed(word.x), sealed(word.y), sealed(word.z), sealed(word.w));
}
__device__ __forceinline__ uint4 opened(const uint4& packet) {
  return make_uint4(~packet.x, ~packet.y, ~packet.z, ~packet.w);
}
/// Parts of a packet may come one by one.
__device__ __forceinline__ bool is_whole(const uint4& packet) {
  return packet.x != 0 && packet.y != 0 && packet.z != 0 && packet.w != 0;
}

/// A launch's packets, as one of its blocks sees them.
struct Packets {
  const Team& team;
  const unsigned& epoch;  // read for each use: where a kernel has it in shared memory, it takes no register

  /// In `at`'s memory: where what `of` sends begins.
  template <int World>
  __device__ __forceinline__ uint4* place(int at, int of) const {
    unsigned char* const packets =
        reinterpret_cast<unsigned char*>(team.control[at]) + control_bytes + 2 * team.half_bytes;
    return reinterpret_cast<uint4*>(packets + (epoch & 1) * packet_bytes) + of * (packet_bytes / 16 / World);
  }
  /// Epoch::send() for what follows no data.
  __device__ __forceinline__ void tell_rows(int rank, int rows) const {
    const unsigned parity = epoch & 1;
    store_relaxed_system(&team.control[rank]->flags[team.rank][parity * flags_per_epoch],
                         expected() << 24 | static_cast<unsigned>(rows));
  }
  /// As Epoch::await() ends, for `peer`, of which the flag came and words did not. `begun`: 0 at first.
  __device__ __forceinline__ bool has_to_end(unsigned polls, unsigned long long& begun, int peer) const {
    Control& own = *team.control[team.rank];
    if (*static_cast<const volatile unsigned*>(&own.failed) != 0) return true;
    const unsigned told = *static_cast<const volatile unsigned*>(&own.told);
    const unsigned long long now = nanoseconds();
    if (begun == 0) begun = now;
    Report::State why = Report::none;
    if (told != 0)
      why = Report::peer_failed;
    else if (now - begun > team.timeout_ns)
      why = Report::timed_out;
    else if (polls % 1024 == 0 && *static_cast<const volatile unsigned*>(&team.report->abort) != 0)
      why = Report::aborted;
    if (why == Report::none) return false;
    detail::report_failure(own, *team.report, why, peer, 0, expected() << 24, expected(), told);
    return true;
  }

 private:
  __device__ __forceinline__ unsigned long long expected() const {
    return static_cast<unsigned long long>(epoch) << 16 | team.tag;
  }
};

/// One block's share of a sum over the ranks: `count` words from word `first` on of each rank's part, of which a thread has up to `Words`.
/// All threads of the block make one, before their first access to global memory, and call push(), sum() and end() in this order.
///
/// All ranks have a block for each word of the bucket's longest part. Each block pushes before it waits for the same words of the peers, and
/// for the first block's flags. Blocks begin in their order, so that nobody waits for a block behind one that waits.
template <typename T, int World, int Threads, int Words>
class PacketSum {
 public:
  struct storage {
    int rows_of[World];  // by rank: the rows that it said to have
    Epoch::storage epoch;
  };

  /// x: this rank's part, in words of 16 bytes.
  __device__ __forceinline__ PacketSum(const Team& team, storage& shared, const uint4* x, const axis_length& rows,
                                       int row_words, int first, int count)
      : team_(team),
        shared_(shared),
        row_words_(row_words),
        first_(first),
        count_(count),
        rows_(begun(rows)),
        own_(loaded(x)),
        epoch_(team, shared.epoch) {}

  /// The thread's words are 0 to `Words` - 1, and its word i is this one of the part.
  __device__ __forceinline__ int index(int i) const { return first_ + place_in_block(i); }
  /// Whether a part of `rows` rows has the thread's word i.
  __device__ __forceinline__ bool has(int i, int rows) const {
    return place_in_block(i) < count_ && index(i) < rows * row_words_;
  }
  __device__ __forceinline__ bool has(int i) const { return has(i, rows_); }
  __device__ __forceinline__ int rows() const { return rows_; }

  __device__ __forceinline__ void push() const {
    if constexpr (World > 1) {
      if (epoch_.failed()) return;
      const int thread = static_cast<int>(threadIdx.x);
      if (blockIdx.x == 0 && thread < peers) packets().tell_rows(following<World>(team_.rank, thread + 1), rows_);
#pragma unroll
      for (int i = 0; i < Words; ++i) {
        if (!has(i)) continue;
        const uint4 packet = sealed(own_.at[i]);
#pragma unroll
        for (int step = 1; step < World; ++step)
          store_relaxed_system(place(following<World>(team_.rank, step), team_.rank, i), packet);
      }
    }
  }

  /// The sums of the thread's words, in the order of the ranks. What a part does not have counts as 0. Returns false where they did not all come,
  /// to all threads of the block. With barriers.
  __device__ __forceinline__ bool sum(uint4 (&sums)[Words]) {
    launch_dependents();
    uint4 parts[World][Words];
    if constexpr (World > 1) {
      const bool told = epoch_.await_all(peers, [&](int thread) {
        const int from = following<World>(team_.rank, thread + 1);
        return (shared_.rows_of[from] = epoch_.await(from, 0)) >= 0;
      });
      if (!told || !epoch_.await_all(Threads, [&](int) { return receive(parts); })) return false;
    }
#pragma unroll
    for (int i = 0; i < Words; ++i) {
      constexpr int n = 16 / sizeof(T);
      vec<float, n> sum = to_floats<T, n>(part(parts, 0, i));
#pragma unroll
      for (int rank = 1; rank < World; ++rank) {
        const vec<float, n> more = to_floats<T, n>(part(parts, rank, i));
#pragma unroll
        for (int j = 0; j < n; ++j) sum.at[j] += more.at[j];
      }
      sums[i] = from_floats<T, n>(sum);
    }
    return true;
  }

  __device__ __forceinline__ void end() const { epoch_.end(); }

 private:
  static constexpr int peers = World - 1;
  static_assert(World * Words <= 32);
  struct own_words {
    uint4 at[Words];
  };

  static __device__ __forceinline__ int begun(const axis_length& rows) {
    wait_for_predecessor();
    return rows.read();
  }
  /// Before the epoch is known: both are asked for together.
  __device__ __forceinline__ own_words loaded(const uint4* x) const {
    own_words own;
#pragma unroll
    for (int i = 0; i < Words; ++i) own.at[i] = has(i) ? __ldcg(x + index(i)) : make_uint4(0, 0, 0, 0);
    return own;
  }

  static __device__ __forceinline__ int place_in_block(int i) { return i * Threads + static_cast<int>(threadIdx.x); }

  __device__ __forceinline__ Packets packets() const { return {team_, shared_.epoch.epoch}; }
  /// The thread's word i of what `of` sends to `at`.
  __device__ __forceinline__ uint4* place(int at, int of, int i) const {
    return packets().template place<World>(at, of) + index(i);
  }
  __device__ __forceinline__ bool awaits(int rank, int i) const {
    return rank != team_.rank && has(i, shared_.rows_of[rank]);
  }
  /// Takes what the peers sent of the thread's words, and leaves 0 in its place for the next launch but one. Returns false where the launch has failed.
  __device__ __forceinline__ bool receive(uint4 (&parts)[World][Words]) const {
    unsigned long long begun = 0;
    unsigned missing = 0;
#pragma unroll
    for (int i = 0; i < World * Words; ++i) {
      parts[i / Words][i % Words] = make_uint4(0, 0, 0, 0);
      missing |= static_cast<unsigned>(awaits(i / Words, i % Words)) << i;
    }
    const unsigned awaited = missing;
    for (unsigned polls = 1; missing != 0; ++polls) {
#pragma unroll
      for (int i = 0; i < World * Words; ++i) {
        if ((missing >> i & 1) != 0)
          parts[i / Words][i % Words] = load_relaxed_system(place(team_.rank, i / Words, i % Words));
      }
#pragma unroll
      for (int i = 0; i < World * Words; ++i) {
        if (is_whole(parts[i / Words][i % Words])) missing &= ~(1u << i);
      }
      if (missing != 0 && polls % 32 == 0 &&
          packets().has_to_end(polls, begun, (__ffs(static_cast<int>(missing)) - 1) / Words))
        return false;
    }
#pragma unroll
    for (int i = 0; i < World * Words; ++i) {
      if ((awaited >> i & 1) != 0)
        store_relaxed_system(place(team_.rank, i / Words, i % Words), make_uint4(0, 0, 0, 0));
    }
    return true;
  }
  /// Word i of `rank`'s part: this rank's own, what came, or 0.
  __device__ __forceinline__ uint4 part(const uint4 (&parts)[World][Words], int rank, int i) const {
    if (rank == team_.rank) return own_.at[i];
    return is_whole(parts[rank][i]) ? opened(parts[rank][i]) : make_uint4(0, 0, 0, 0);
  }

  const Team& team_;
  storage& shared_;
  const int row_words_, first_, count_;
  const int rows_;
  const own_words own_;
  Epoch epoch_;
};

}  // namespace kiln::team
