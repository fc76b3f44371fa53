#include "cli/bench/regret_measure.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/interrupt.hpp"
#include "cli/tuning.hpp"
#include "engine/lookup.hpp"
#include "kiln/error.hpp"
#include "tune/tuner.hpp"

namespace kiln::cli::bench {

RegretMeasurement::RegretMeasurement(const Globals& globals, engine::State& state, const spec::Op& op, std::size_t axis,
                                     std::vector<spec::BucketPolicy> policies)
    : globals_(globals), state_(state), op_(op), axis_(axis), policies_(std::move(policies)), exact_(op) {
  if (policies_.empty()) policies_.push_back(op.axes[axis].policy);
  for (spec::Axis& each : exact_.axes) each.policy = {};
}

/// Only the length is raised to its bucket's edge: the other sizes are what they are.
Problem RegretMeasurement::edge_of(const Problem& problem, const spec::BucketPolicy& policy) const {
  Problem edge = problem;
  edge.axes[axis_] = policy.high(problem.axes[axis_], op_.axes[axis_].maximum);
  return edge;
}

Contender RegretMeasurement::as_exact(std::string_view implementation, std::string_view config) const {
  const spec::Implementation* found = exact_.find(implementation);
  const auto parsed = found == nullptr ? std::nullopt : spec::parse_config(*found, config);
  if (!parsed)
    throw Error(ErrorKind::not_tuned,
                fmt::format("{} has no implementation and config '{} {}'", op_.name, implementation, config));
  return {found, *parsed};
}

const Contender& RegretMeasurement::tuned_for(const Problem& problem) {
  const std::string text = spec::to_string(exact_, problem);
  if (const auto known = tuned_.find(text); known != tuned_.end()) return known->second;
  const auto& device = state_.context.info();
  const tune::TuneRequest request{.op = exact_,
                                  .bucket = problem,
                                  .key = spec::record_key(exact_, problem, device.facts, state_.options.regime),
                                  .device = device,
                                  .regime = state_.options.regime,
                                  .arch = state_.arch,
                                  .search = state_.options.search,
                                  .worker = state_.worker.get(),
                                  .stop_requested = Interrupt::requested,
                                  .on_event = {}};
  const store::Record record = tune::tune_bucket(request, state_.cubins).record;
  return tuned_.emplace(text, as_exact(record.implementation, record.config)).first->second;
}

Contender RegretMeasurement::shared_config(const Problem& edge, const spec::BucketPolicy& policy) {
  const Problem bucket = spec::bucket_of(op_, edge);
  if (policy != op_.axes[axis_].policy || bucket != edge) return tuned_for(edge);
  const auto look_up = [&] {
    return engine::look_up(op_, bucket, state_.context.info().facts, state_.options.regime, state_.layers, false);
  };
  engine::Lookup lookup = look_up();
  if (!lookup.is_hit()) {
    Globals quiet = globals_;
    quiet.quiet = true;
    quiet.json = false;
    const OpBucket missing{&op_, bucket};
    const TuningResult tuned = tune_buckets(quiet, TuningDevices(state_), {&missing, 1}, Again::none);
    if (tuned.interrupted) throw Error(ErrorKind::interrupted, "interrupted");
    if (tuned.buckets.front().outcome == Outcome::failed)
      throw Error(ErrorKind::not_tuned, tuned.buckets.front().reason);
    lookup = look_up();
  }
  return as_exact(lookup.record->value.implementation, lookup.record->value.config);
}

std::vector<Regret> RegretMeasurement::at(const Problem& problem) {
  const spec::DeviceFacts& device = state_.context.info().facts;
  std::vector<Contender> contenders{tuned_for(problem)};
  std::vector<std::size_t> places;  // of each policy's config among the contenders
  std::vector<Regret> regrets;
  for (const spec::BucketPolicy& policy : policies_) {
    const Problem edge = edge_of(problem, policy);
    Contender shared = shared_config(edge, policy);
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
    if (spec::broken_constraint(exact_, *shared.implementation, problem, device, shared.config)) {
      const tune::Usable usual = tune::default_for(exact_, problem, device);
      if (usual.implementation == nullptr) throw Error(ErrorKind::not_tuned, usual.why_not);
      shared = {usual.implementation, usual.config};
      regret.fell_back = true;
    }
    const auto known = std::find(contenders.begin(), contenders.end(), shared);
    places.push_back(static_cast<std::size_t>(known - contenders.begin()));
    if (known == contenders.end()) contenders.push_back(std::move(shared));
    regrets.push_back(std::move(regret));
  }
  const auto timed = contest(state_, exact_, problem, state_.options.regime, contenders);
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
