// Machine code of a team's record, which one rank's file gives to all.
#pragma once

#include "answer/resolver.hpp"
#include "kiln/engine.hpp"
#include "team/member.hpp"

namespace kiln::engine {

/// Collective: stores on each rank the machine code of the answers that its own files lack. It comes from the lowest
/// rank that has code which this rank may load. Code that no rank has is compiled by the lowest of the ranks that need
/// the same. A rank without NVRTC that is offered none is left to PlanStore::load. `had_record`: a lack counts as
/// Miss::no_cubin. Throws on all ranks what a compile or store threw on any, and as team::Rendezvous does.
void share_machine_code(plan::OpState& op_state, team::Member& team, const answer::Resolution& resolution,
                        bool had_record);

}  // namespace kiln::engine
