// Plans of an op of a team: all ranks make them together, and from one record.
#pragma once

#include <memory>

#include "engine/tune_once.hpp"
#include "kiln/engine.hpp"
#include "plan/bucket_plans.hpp"
#include "team/member.hpp"

namespace kiln::engine {

struct EngineState;

/// While it lives, the workers of the team's tunes run from one tune to the next. Otherwise they end with each tune,
/// because they hold as much symmetric memory as the ranks. Not collective. The last one waits for the
/// team's collectives().
class KeptTrialWorkers {
 public:
  explicit KeptTrialWorkers(EngineState& engine);
  ~KeptTrialWorkers();
  KeptTrialWorkers(const KeptTrialWorkers&) = delete;
  KeptTrialWorkers& operator=(const KeptTrialWorkers&) = delete;

 private:
  EngineState& engine_;
};

/// Collective: returns the bucket's record, which all ranks then have. A record that some ranks have, and that
/// `asked.retune` spares, goes from the lowest of them to the others. Where none has one, and all tune, rank 0 tunes as
/// `asked` and the others take part. Either all ranks return or all throw: Error(bad_input) where a rank asks for
/// another bucket, Error(not_tuned), Error(team_failed) where a launch of any rank had failed, and what tuning threw on
/// any. Throws Error(team_failed) where a rank ended or did not come, after which the team is of no more use.
TuneOutcome agree_on_record(plan::OpState& op_state, const Problem& problem, bool tunes, const TuneAsked& asked);

/// Collective: returns the problem's plans, made from the same config on all ranks. Throws as agree_on_record() does,
/// and on all ranks what loading threw on any.
std::unique_ptr<plan::BucketPlans> build_with_team(plan::OpState& op_state, const Problem& problem);

}  // namespace kiln::engine
