// What a Tuner's ranks check together before the tunes of a team's ops, and the memory that these need.
#pragma once

#include <cstdint>
#include <span>

#include "kiln/tuner.hpp"
#include "manifest/op_bucket.hpp"
#include "team/rendezvous.hpp"

namespace kiln::tune {

/// Throws Error(bad_input) where a bucket is of an op of a team: its ranks alone can tune it, each with a team.
void require_no_team(std::span<const manifest::OpBucket> buckets);

/// Collective. Throws Error(bad_input) on all ranks unless each asks for the same tunes of ops of a team, in the same
/// order.
void require_same_tunes(team::Rendezvous& rendezvous, std::span<const manifest::Bucket> buckets, Retune retune);

/// TeamOptions::bytes with which every config of these buckets can be launched, for the buckets of ops of a team. 0
/// where there is none.
std::int64_t team_bytes_for(std::span<const manifest::Bucket> buckets);

}  // namespace kiln::tune
