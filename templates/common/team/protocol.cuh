// The layout of a team's symmetric memory, and what kernels are told of a team: the device's twin of src/team/protocol.hpp.
//
// A team is up to 8 ranks, processes of one host with a GPU each. Every rank has symmetric memory that all ranks reach: a Control, then
// two halves. A launch is an epoch, which all ranks count alike. Its symmetric workspaces lie in half `epoch & 1`.
//
// 1. A rank pushes data into its peers' halves, then raises a flag in the peer's Control. A flag holds the epoch and the plan's tag, which
//    its reader compares for equality with its own. So nothing is ever cleared, and ranks that run different plans find out.
// 2. In each launch every rank sends at least one flag to each peer and waits for one or more from each, also without
// rows.
//    So nobody asks leave to push. A rank in epoch e has finished e - 1, and so has heard in e - 1 from each peer, which had finished
//    e - 2 by then. Nobody reads half `e & 1` any more.
// 3. By then that peer may still have to read flags of e - 1. So flags too are there twice, by the epoch's parity.
// 4. Work that others wait for is claimed by counters, or done by each block before it waits. So no block waits for one that has not started.
// 5. A wait that fails sets `failed`, for good: it ends all waits of this rank, and no later launch pushes or waits. Outputs become NaN, and
//    each launch still ends as usual. The host reads the Report and resets the whole team.
//    A rank that went on would push into halves that a late peer still reads: tests/team_model shows how.
// 6. A block that has failed writes `told` in all peers' Controls when it ends. A peer that waits, or that begins a launch, fails by it at
//    once: nobody waits for a rank that takes part no more.
// 7. Behind the halves lie packets, for each parity of the epoch too: words that are 0 until one comes (packets.cuh). A rank sends a flag all
//    the same, which says its rows. A peer takes all words that it says, and leaves 0 there before its launch ends, so before any rank sends
//    packets of that parity again. Other ops store nothing there. A reset clears them.
#pragma once

namespace kiln::team {

inline constexpr int most_ranks = 8;
inline constexpr int most_flags = 512;
inline constexpr int flags_per_epoch = most_flags / 2;
inline constexpr int claim_words = 16;

/// A rank's words, at the start of its symmetric memory: all that must be 0 between launches. So a reset clears what a
/// launch left that failed or ran beside another.
struct Control {
  unsigned epoch;                 // launches that this rank has completed, modulo 2^24
  unsigned finished;              // blocks of the present launch that have finished
  unsigned running;               // launches that have begun and not ended
  unsigned claimed[claim_words];  // work handed out
  unsigned failed;                // 1 from the first failed wait on, until the team is reset
  /// Written by a peer that failed, until the team is reset: 1 << 31, its Report's state, the rank that it waited for,
  /// and itself. Each has 8 bits. Else 0.
  unsigned told;
  unsigned unused[43];
  unsigned long long
      flags[most_ranks][most_flags];  // by sending rank: epoch (24 bits), tag (16), rows (24), from the highest bit on
  /// By receiving rank and chunk: its pieces that blocks of this launch have pushed.
  unsigned pushed[most_ranks][flags_per_epoch];
};
static_assert(sizeof(Control) == 256 + 8 * most_ranks * most_flags + 4 * most_ranks * flags_per_epoch);

/// In the host's memory.
struct Report {
  enum State : unsigned { none, timed_out, other_plan, aborted, two_launches, peer_failed };
  unsigned state;  // written last
  unsigned abort;  // written by the host: not 0 ends every wait
  int rank;        // that was waited for, or has failed
  int flag;
  unsigned expected_epoch, seen_epoch, expected_tag, seen_tag;
  unsigned peer_state;  // of peer_failed: the peer's own state,
  int peer_rank;        // and the rank that the peer waited for
  unsigned unused[6];
};
static_assert(sizeof(Report) == 64);

/// What `{ team = true }` passes.
struct Team {
  Control* control[most_ranks];  // each rank's, as this rank reaches it
  Report* report;
  unsigned long long half_bytes;  // from a workspace in the first half to itself in the second
  unsigned long long timeout_ns;
  int rank, world;
  unsigned tag;  // of the plan, 16 bits, not 0
  unsigned unused;
};
static_assert(sizeof(Team) == 104);

/// What `{ peers = "WORKSPACE" }` passes: the workspace in the first half of each rank's memory.
struct Peers {
  unsigned char* of[most_ranks];
};
static_assert(sizeof(Peers) == 64);

}  // namespace kiln::team
