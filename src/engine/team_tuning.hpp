// What a Tuner's ranks check together before and between the tunes of a team's ops, and the memory that these need.
#pragma once

#include <functional>
#include <span>

#include "engine/tuning.hpp"

namespace kiln::engine {

/// Throws Error(bad_input) where a bucket is of an op of a team: its ranks alone can tune it, each with a team.
void require_no_team(std::span<const OpBucket> buckets);

/// Collective. Throws Error(bad_input) on all ranks unless each asks for the same buckets, in the same order, with the same `retune`. `indices`: of
/// the buckets of ops of a team. Precondition of this and the next: the state has a team.
void require_same_tunes(State& state, std::span<const OpBucket> buckets, std::span<const std::size_t> indices,
                        Retune retune);

/// Collective. Throws Error(interrupted) on all ranks where one was asked to stop.
void stop_together(State& state, const std::function<bool()>& is_stopped);

/// TeamOptions::bytes with which every config of these buckets can be launched, for the buckets of ops of a team. 0 where there is none.
std::int64_t team_bytes_for(std::span<const OpBucket> buckets, const manifest::DeviceFacts& device);

}  // namespace kiln::engine
