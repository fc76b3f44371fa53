// The layout of a team's symmetric memory, and what kernels are told of a team: templates/common/team/protocol.cuh
// declares the same structures for the device and explains the protocol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "manifest/limits.hpp"

namespace kiln::team {

inline constexpr int most_ranks = ::kiln::manifest::most_kernel_ranks;
inline constexpr int most_flags = 512;  // from one rank to another, of both halves
inline constexpr int claim_words = 16;
inline constexpr std::int64_t control_bytes = std::int64_t{64} << 10;  // at the start of each rank's memory
inline constexpr std::int64_t workspace_alignment = 256;
/// Of words that tell by themselves that they came (templates/common/team/packets.cuh), for each parity of the epoch.
/// All 0 at first.
inline constexpr std::int64_t packet_bytes = std::int64_t{8} << 20;

/// A rank's words, at the start of its symmetric memory. All 0 at first.
struct Control {
  std::uint32_t epoch;     // launches that this rank has completed, modulo 2^24
  std::uint32_t finished;  // blocks of the present launch that have finished; 0 between launches
  std::uint32_t running;   // launches that have begun and not ended
  std::array<std::uint32_t, claim_words> claimed;  // work handed out; 0 between launches
  std::uint32_t failed;  // 1 from the first failed wait on, until the team is reset: no launch pushes or waits any more
  std::uint32_t told;    // by a peer that failed, as the device's twin says; else 0
  std::array<std::uint32_t, 43> unused;
  /// By sending rank: epoch (24 bits), plan tag (16 bits), rows (24 bits), from the highest bit on. Half of them for
  /// each parity of the epoch, since a rank may be an epoch ahead of one that has yet to read its flags.
  std::array<std::array<std::uint64_t, most_flags>, most_ranks> flags;
  /// By receiving rank and chunk: its pieces that blocks of the present launch have pushed; 0 between launches.
  std::array<std::array<std::uint32_t, most_flags / 2>, most_ranks> pushed;
};
static_assert(offsetof(Control, flags) == 256 && sizeof(Control) <= control_bytes);

/// What a launch reports to the host, in pinned memory. 64 bytes.
struct Report {
  enum State : std::uint32_t {
    none,
    timed_out,
    other_plan,
    aborted,
    two_launches,
    peer_failed,
    nccl_aborted,  // by the host, here and below
    nccl_failed
  };
  std::uint32_t state;  // written last
  std::uint32_t abort;  // written by the host: not 0 ends every wait
  std::int32_t rank;    // that this rank waited for, or that has failed
  std::int32_t flag;
  std::uint32_t expected_epoch, seen_epoch, expected_tag, seen_tag;
  std::uint32_t peer_state;  // of peer_failed: the peer's own state,
  std::int32_t peer_rank;    // and the rank that the peer waited for
  std::array<std::uint32_t, 6> unused;
};
static_assert(sizeof(Report) == 64);

/// The argument { team = true }.
struct TeamArgument {
  std::array<std::uint64_t, most_ranks> control;  // address of each rank's Control, as this rank reaches it
  std::uint64_t report;                           // address of this rank's Report on the device
  std::uint64_t half_bytes;                       // from a workspace in the first half to itself in the second
  std::uint64_t timeout_ns;
  std::int32_t rank, world;
  std::uint32_t tag;  // of the plan, 16 bits: equal on all ranks, not 0
  std::uint32_t unused;
};
static_assert(sizeof(TeamArgument) == 104);

/// The argument { peers = "WORKSPACE" }: the workspace in the first half of each rank's memory.
struct PeersArgument {
  std::array<std::uint64_t, most_ranks> of;
};
static_assert(sizeof(PeersArgument) == 64);

/// The bytes of each half of a symmetric memory of `bytes`; 0 or less where there is no room.
constexpr std::int64_t half_bytes(std::int64_t bytes) {
  return (bytes - control_bytes) / 2 / workspace_alignment * workspace_alignment;
}

/// Where packets begin in a symmetric memory: behind both halves, which no packet may share, since it is told from its
/// absence by its bits.
constexpr std::int64_t packets_offset(std::int64_t bytes) {
  return control_bytes + 2 * (half_bytes(bytes) > 0 ? half_bytes(bytes) : 0);
}
/// What is allocated for a symmetric memory of `bytes`.
constexpr std::int64_t allocated_bytes(std::int64_t bytes) { return packets_offset(bytes) + 2 * packet_bytes; }

}  // namespace kiln::team
