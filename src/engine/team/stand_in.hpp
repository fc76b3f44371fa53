// What a team launches where no rank has a record: one config, which one rank proposes.
#pragma once

#include "answer/resolver.hpp"
#include "kiln/problem.hpp"
#include "team/member.hpp"

namespace kiln::plan {
struct OpState;
}

namespace kiln::engine {

/// Collective: returns the same answer on all ranks, for all sizes of the bucket. It is that of the lowest rank that
/// has a near record, else of the lowest that has any. Throws Error(not_tuned) on all ranks where nothing stands in,
/// and Error(bad_input) where a rank's op lacks what another one proposed.
answer::Resolution agree_on_stand_in(plan::OpState& op_state, team::Member& team, const Problem& problem);

}  // namespace kiln::engine
