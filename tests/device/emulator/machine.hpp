// The threads, warps and blocks of the cluster that is running.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "emulator/barriers.hpp"
#include "emulator/fiber.hpp"
#include "emulator/in_flight.hpp"
#include "emulator/meeting.hpp"
#include "emulator/products.hpp"
#include "emulator/shared_memory.hpp"
#include "emulator/vectors.hpp"

namespace emulator {

struct Block;
struct Cluster;

struct Thread {
  Fiber fiber;
  Block* block = nullptr;
  unsigned number = 0;  // in its block
  uint3 index{};
  Wait* wait = nullptr;
  unsigned cluster_rounds = 0;       // of the cluster's barrier when it arrived
  bool arrived_at_cluster = false;   // and has yet to wait
  Groups copies;                     // cp.async
  Groups store_reads, store_writes;  // bulk stores: of shared memory, to global memory
  unsigned votes = 0;                // __syncthreads_or that it has taken part in
  bool acquired = false;             // a flag, and has yet to make what it guards seen by bulk copies

  [[nodiscard]] unsigned lane() const { return number % 32; }
};

struct Block {
  Block(Cluster& of, unsigned its_rank, uint3 its_index, unsigned threads, unsigned dynamic_bytes);

  [[nodiscard]] bool ended() const { return live == 0; }
  /// The mbarrier at `offset`. Throws Fault where none was made.
  [[nodiscard]] Mbarrier& mbarrier_at(unsigned offset);

  Cluster& cluster;
  unsigned rank;
  uint3 index;
  SharedMemory shared;
  std::deque<Thread> threads;
  unsigned live;
  std::array<NamedBarrier, 16> barriers;
  std::array<bool, 3> votes{};  // of __syncthreads_or, in turn
  std::map<unsigned, Mbarrier> mbarriers;
  std::map<std::pair<unsigned, unsigned>, Meeting<32>> warp_meetings;  // by warp and mask
  std::map<unsigned, Warpgroup> warpgroups;
  unsigned loads_in_flight = 0;  // into its shared memory
};

struct Cluster {
  int grid = -1;  // of several that run together
  dim3 grid_dim, block_dim;
  std::deque<Block> blocks;
  ClusterBarrier barrier;
  InFlight in_flight;
  std::uint32_t most_rows_outside = 0;  // of a box that was loaded

  [[nodiscard]] unsigned live() const;
  /// The block that a shared address names. Throws Fault where there is none, or it has ended.
  [[nodiscard]] Block& block_at(unsigned address);
  [[nodiscard]] std::byte* at(unsigned address, std::size_t bytes, std::size_t alignment);
};

/// A clock of all threads: a nanosecond each time that one of them goes on.
[[nodiscard]] std::uint64_t nanoseconds();
/// The thread that runs. Throws Fault outside of a launch.
[[nodiscard]] Thread& current();
[[nodiscard]] inline Block& current_block() { return *current().block; }
[[nodiscard]] inline Cluster& current_cluster() { return current().block->cluster; }
/// An address that must be in this block's shared memory.
[[nodiscard]] std::byte* own_shared(unsigned address, std::size_t bytes, std::size_t alignment);

/// The lanes of `mask` of the current thread's warp carry out `what` together: act(values by lane) is called once.
template <typename Value, typename Act>
void meet_in_warp(std::string_view what, unsigned mask, Value& mine, Act act) {
  Thread& thread = current();
  const unsigned warp = thread.number / 32;
  const unsigned lanes = std::min<unsigned>(32, static_cast<unsigned>(thread.block->threads.size()) - warp * 32);
  const unsigned expected = lanes == 32 ? mask : mask & ((1u << lanes) - 1);
  if ((expected >> thread.lane() & 1) == 0)
    fault("lane {} comes to {} and is not in its mask {:#x}", thread.lane(), what, mask);
  thread.block->warp_meetings[{warp, expected}].meet(what, thread.lane(),
                                                     static_cast<unsigned>(__builtin_popcount(expected)), mine, act);
}

}  // namespace emulator
