// The ranks of a team over one address space, and launches of theirs that run together.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "common/team/protocol.cuh"
#include "emulator/launch.hpp"

namespace test {

/// How each rank's grid is launched.
struct TeamLaunch {
  unsigned blocks = 1, threads = 32;
  std::uint32_t seed = 0;
  unsigned resident = 0;  // blocks; 0: all
  int absent = -1;        // rank that never comes
  int at_once = 1;        // grids of each rank that run at once, where one is right
};

/// Bytes that are 0, and take no memory before they are touched: most are not.
struct Unmap {
  std::size_t bytes;
  void operator()(unsigned char* memory) const { munmap(memory, bytes); }
};
using Zeros = std::unique_ptr<unsigned char, Unmap>;
inline Zeros zeros(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return {static_cast<unsigned char*>(memory), Unmap{bytes}};
}

class Team {
 public:
  static constexpr std::int64_t control_bytes = 64 << 10;
  static constexpr std::int64_t packet_bytes = 8 << 20;  // of each parity, behind the halves
  static constexpr std::uint64_t no_timeout = std::uint64_t{1} << 60;

  Team(int world, std::int64_t workspace_bytes)
      : half_bytes_((workspace_bytes + 255) / 256 * 256), memories_(static_cast<std::size_t>(world)) {
    for (Memory& each : memories_) {
      each.bytes = zeros(allocated_bytes());
      poison_half(each, 0);
      poison_half(each, 1);
    }
  }

  std::uint64_t timeout_ns = no_timeout;
  std::function<std::uint64_t(int)> timeout_of = {};                  // by rank, in place of timeout_ns
  std::function<unsigned(int)> tag_of = [](int) { return 0x1234u; };  // by rank

  [[nodiscard]] int world() const { return static_cast<int>(memories_.size()); }
  kiln::team::Control& control(int rank) { return *reinterpret_cast<kiln::team::Control*>(at(rank).bytes.get()); }
  kiln::team::Report& report(int rank) { return at(rank).report; }
  [[nodiscard]] kiln::team::Team argument(int rank) {
    kiln::team::Team made{};
    for (int i = 0; i < world(); ++i) made.control[i] = &control(i);
    made.report = &report(rank);
    made.half_bytes = static_cast<unsigned long long>(half_bytes_);
    made.timeout_ns = timeout_of ? timeout_of(rank) : timeout_ns;
    made.rank = rank;
    made.world = world();
    made.tag = tag_of(rank);
    return made;
  }
  [[nodiscard]] kiln::team::Peers workspace() {
    kiln::team::Peers made{};
    for (int i = 0; i < world(); ++i) made.of[i] = half(at(i), 0);
    return made;
  }

  /// `launches` of each rank, one after another on each and all ranks at their own pace. Each begins with NaN in the half that the
  /// launch before it used, which is free then. Calls kernel(launch, rank) in every thread.
  void run(const TeamLaunch& how, int launches, const std::function<void(int, int)>& kernel) {
    std::vector<emulator::Grid> grids;
    for (int launch = 0; launch < launches; ++launch) {
      for (int rank = 0; rank < world(); ++rank) {
        if (rank == how.absent) continue;
        const int present = world() - (how.absent >= 0 ? 1 : 0);
        const emulator::Grid grid{{.grid = {how.blocks}, .block = {how.threads}, .seed = how.seed},
                                  [=, &kernel] { kernel(launch, rank); },
                                  how.resident,
                                  launch == 0 ? -1 : static_cast<int>(grids.size()) - present,
                                  [this, rank] { poison_half(at(rank), control(rank).epoch & 1); }};
        grids.insert(grids.end(), static_cast<std::size_t>(how.at_once), grid);
      }
    }
    emulator::launch_together(grids);
  }

  /// Whether the rank reports that it waited for `awaited` and ended so, or that a peer did.
  bool reports(int rank, kiln::team::Report::State state, int awaited) {
    const kiln::team::Report& own = report(rank);
    if (own.state == kiln::team::Report::peer_failed)
      return own.rank != rank && own.peer_state == state && (own.peer_rank == awaited || own.peer_rank == rank);
    return own.state == state && own.rank == awaited;
  }

  /// Whether the rank's words are as between launches.
  bool idle(int rank, unsigned epoch) {
    const kiln::team::Control& words = control(rank);
    const auto is_zero = [](unsigned each) { return each == 0; };
    const unsigned* pushed = words.pushed[0];
    return words.epoch == epoch && words.finished == 0 && words.running == 0 &&
           std::all_of(std::begin(words.claimed), std::end(words.claimed), is_zero) &&
           std::all_of(pushed, pushed + sizeof words.pushed / sizeof *pushed, is_zero);
  }
  /// Whether packets left nothing behind.
  bool packets_are_clear(int rank) {
    const auto* packets = reinterpret_cast<const std::uint64_t*>(at(rank).bytes.get() + packets_at());
    return std::all_of(packets, packets + 2 * packet_bytes / 8, [](std::uint64_t each) { return each == 0; });
  }
  /// As kiln::Team::reset.
  void reset() {
    for (Memory& each : memories_) {
      std::memset(each.bytes.get(), 0, control_bytes);
      std::memset(each.bytes.get() + packets_at(), 0, 2 * packet_bytes);
      each.report = {};
    }
  }

 private:
  struct Memory {
    Zeros bytes;
    kiln::team::Report report{};
  };

  Memory& at(int rank) { return memories_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t allocated_bytes() const {
    return static_cast<std::size_t>(packets_at() + 2 * packet_bytes);
  }
  [[nodiscard]] std::int64_t packets_at() const { return control_bytes + 2 * half_bytes_; }
  unsigned char* half(Memory& memory, unsigned parity) {
    return memory.bytes.get() + control_bytes + parity * half_bytes_;
  }
  void poison_half(Memory& memory, unsigned parity) {
    std::memset(half(memory, parity), 0xff, static_cast<std::size_t>(half_bytes_));
  }

  std::int64_t half_bytes_;
  std::vector<Memory> memories_;
};

/// The numbers of ranks that tests of team ops take: calls run(std::integral_constant<int, world>).
template <typename Run>
void with_world(std::size_t world, Run run) {
  switch (world) {
    case 1: return run(std::integral_constant<int, 1>());
    case 2: return run(std::integral_constant<int, 2>());
    case 3: return run(std::integral_constant<int, 3>());
    case 4: return run(std::integral_constant<int, 4>());
    default: return run(std::integral_constant<int, 8>());
  }
}

/// Rows of each rank, with which team ops are tested.
inline const std::vector<std::vector<int>> team_rows = {
    {8}, {8, 8}, {1, 0}, {0, 0}, {5, 0, 8}, {0, 2, 0, 8}, {7, 1, 0, 8, 2, 8, 3, 5}};

}  // namespace test
