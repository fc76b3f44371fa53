// Tunes an op of a team: one rank decides what is tried, and all ranks run each candidate at once.
#pragma once

#include <memory>

#include "tune/bench.hpp"
#include "tune/rank_trials.hpp"

namespace kiln::tune {

/// The bench of the rank that tunes. Each call is a collective, which the other ranks answer within
/// serve_team_trials(). A time is the maximum over the ranks, and a failure on one rank is the candidate's. A candidate
/// that ends a worker or exceeds the limit is rejected with the reason; new workers take the next one. Throws on this
/// rank what local_bench() or its calls throw on any rank, as team::Rendezvous does, Error(driver_failed) where workers
/// end before a candidate is in them, and an Error where there are no workers and a rank requires them.
std::unique_ptr<Bench> team_bench(const BenchSettings& settings, answer::Cubins& cubins, RankTrials& trials);

/// Collective, of the rank that tunes: the serve_team_trials() of the other ranks return.
void end_team_trials(RankTrials& trials);

/// Answers the rank `tuning` until it calls end_team_trials(). Throws as team::Rendezvous does.
void serve_team_trials(RankTrials& trials, int tuning);

}  // namespace kiln::tune
