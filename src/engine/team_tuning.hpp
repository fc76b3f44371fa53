// What a Tuner's ranks check together before and between the tunes of a team's ops, and the memory that these need.
#pragma once

#include <functional>
#include <span>

#include "engine/tuning.hpp"
#include "team/rendezvous.hpp"

namespace kiln::engine {

/// Throws Error(bad_input) where a bucket is of an op of a team: its ranks alone can tune it, each with a team.
void require_no_team(std::span<const OpBucket> buckets);

/// What the ranks of a team must ask for alike. Of `buckets`, those of ops of a team count.
struct TeamTunes {
  std::span<const OpBucket> buckets;
  const manifest::DeviceFacts& device;
  Regime regime;
  Retune retune;
};
/// Collective. Throws Error(bad_input) on all ranks unless each asks for the same tunes, in the same order.
void require_same_tunes(team::Rendezvous& rendezvous, const TeamTunes& tunes);

/// Collective. Throws Error(interrupted) on all ranks where one was asked to stop. Precondition: the state has a team.
void stop_together(State& state, const std::function<bool()>& is_stopped);

/// TeamOptions::bytes with which every config of these buckets can be launched, for the buckets of ops of a team. 0 where there is none.
std::int64_t team_bytes_for(std::span<const OpBucket> buckets, const manifest::DeviceFacts& device);

}  // namespace kiln::engine
