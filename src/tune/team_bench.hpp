// Tunes an op of a team: one rank decides what is tried, and all ranks run each candidate at once.
#pragma once

#include <memory>

#include "tune/bench.hpp"

namespace kiln::tune {

/// The bench of the rank that tunes. Each call is a collective, which the other ranks answer within
/// serve_team_trials(). A time is the maximum over the ranks, and a failure on one rank is the candidate's. Throws on
/// this rank what local_bench() or its calls throw on any rank, and as team::Rendezvous does. Precondition:
/// `settings.member` is given.
std::unique_ptr<Bench> team_bench(const BenchSettings& settings, answer::Cubins& cubins);

/// Collective, of the rank that tunes: the others' serve_team_trials() return.
void end_team_trials(team::Member& team);

/// Answers the rank `tuning` until it calls end_team_trials(). Throws as team::Rendezvous does.
void serve_team_trials(team::Member& team, int tuning, const cuda::Context& context);

}  // namespace kiln::tune
