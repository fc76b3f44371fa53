#include "cli/bench/regret_measure.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/tuning.hpp"
#include "engine/lookup.hpp"
#include "kiln/error.hpp"

namespace kiln::cli::bench {

RegretMeasurement::RegretMeasurement(const Globals& globals, engine::State& state, const spec::Op& op, std::size_t axis,
                                     std::vector<spec::BucketPolicy> policies)
    : globals_(globals),
      state_(state),
      op_(op),
      axis_(axis),
      policies_(std::move(policies)),
      tunes_(state, with_exact_axes(op)) {
  if (policies_.empty()) policies_.push_back(op.axes[axis].policy);
}

/// Only the length is raised to its bucket's edge: the other sizes are what they are.
Problem RegretMeasurement::edge_of(const Problem& problem, const spec::BucketPolicy& policy) const {
  Problem edge = problem;
  edge.axes[axis_] = policy.high(problem.axes[axis_], op_.axes[axis_].maximum);
  return edge;
}

/// What serves the problem under a policy; under the op's own also by the lower part of a bucket that is split.
Contender RegretMeasurement::shared_config(const Problem& problem, const spec::BucketPolicy& policy) {
  const Problem edge = edge_of(problem, policy);
  const Problem bucket = spec::bucket_of(op_, edge);
  if (policy != op_.axes[axis_].policy || bucket != edge) return tunes_.at(edge).winner;
  const auto look_up = [&] {
    return engine::look_up(op_, bucket, state_.context.info().facts, state_.options.regime, state_.layers, false);
  };
  engine::Lookup lookup = look_up();
  if (!lookup.is_hit()) {
    Globals quiet = globals_;
    quiet.quiet = true;
    quiet.json = false;
    const OpBucket missing{&op_, bucket};
    const TuningResult tuned = tune_buckets(quiet, TuningDevices(state_), {&missing, 1}, {Again::none});
    if (tuned.interrupted) throw Error(ErrorKind::interrupted, "interrupted");
    if (tuned.buckets.front().outcome == Outcome::failed)
      throw Error(ErrorKind::not_tuned, tuned.buckets.front().reason);
    lookup = look_up();
  }
  lookup = engine::part_at(op_, std::move(lookup), problem);
  return tunes_.contender(lookup.record->value.implementation, lookup.record->value.config);
}

std::vector<Regret> RegretMeasurement::at(const Problem& problem) {
  const spec::DeviceFacts& device = state_.context.info().facts;
  std::vector<Contender> contenders{tunes_.at(problem).winner};
  std::vector<std::size_t> places;  // of each policy's config among the contenders
  std::vector<Regret> regrets;
  for (const spec::BucketPolicy& policy : policies_) {
    const Problem edge = edge_of(problem, policy);
    Contender shared = shared_config(problem, policy);
    Regret regret{policy.text(),
                  spec::to_string(op_, problem),
                  problem.axes[axis_],
                  edge.axes[axis_],
                  shared.name(),
                  contenders.front().name(),
                  0,
                  0,
                  0,
                  false};
    if (spec::broken_constraint(tunes_.op(), *shared.implementation, problem, device, shared.config)) {
      const tune::Usable usual = tune::default_for(tunes_.op(), problem, device);
      if (usual.implementation == nullptr) throw Error(ErrorKind::not_tuned, usual.why_not);
      shared = {usual.implementation, usual.config};
      regret.fell_back = true;
    }
    const auto known = std::find(contenders.begin(), contenders.end(), shared);
    places.push_back(static_cast<std::size_t>(known - contenders.begin()));
    if (known == contenders.end()) contenders.push_back(std::move(shared));
    regrets.push_back(std::move(regret));
  }
  const auto timed = contest(state_, tunes_.op(), problem, state_.options.regime, contenders);
  for (std::size_t i = 0; i < regrets.size(); ++i) {
    const Timed& shared = timed[places[i]];
    for (const Timed* each : {&shared, &timed.front()})
      if (!each->ok())
        throw Error(ErrorKind::wrong_result,
                    fmt::format("at {} a config that was tuned is refused: {}", regrets[i].problem, each->reason));
    regrets[i].shared_ns = shared.cost.median_ns;
    regrets[i].own_ns = timed.front().cost.median_ns;
    if (places[i] != 0) regrets[i].regret = tune::ratio(shared.samples_ns, timed.front().samples_ns).median_ns - 1;
  }
  return regrets;
}

}  // namespace kiln::cli::bench
