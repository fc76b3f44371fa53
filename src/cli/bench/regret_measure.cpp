#include "cli/bench/regret_measure.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "answer/serving.hpp"
#include "cli/interrupt.hpp"
#include "kiln/error.hpp"
#include "tune/tune_bucket.hpp"

namespace kiln::cli::bench {

RegretMeasurement::RegretMeasurement(Tools& tools, const Engine& engine, const manifest::Op& op, std::size_t axis,
                                     std::vector<manifest::BucketPolicy> policies)
    : tools_(tools),
      engine_(engine),
      tuner_(engine),
      op_(op),
      axis_(axis),
      policies_(std::move(policies)),
      exact_{op, {}} {
  for (manifest::Axis& each : exact_.op.axes) each.policies.assign(1, {});
  for (const manifest::BucketPolicy& policy : policies_)
    variants_.push_back({op, {}}), variants_.back().op.axes[axis].policies.assign(1, {{}, policy});
}

const store::Record& RegretMeasurement::tuned(Variant& variant, const manifest::Bucket& bucket) {
  const std::string text = bucket.text();
  if (const auto known = variant.records.find(text); known != variant.records.end()) return known->second;
  const tune::TuneRequest request{.bucket = bucket,
                                  .device = tools_.context.info(),
                                  .arch = tools_.arch(),
                                  .worker = tools_.worker.get(),
                                  .stop_requested = Interrupt::requested,
                                  .on_event = {}};
  return variant.records.emplace(text, tune::tune_bucket(request, tools_.cubins).record).first->second;
}

manifest::Variant RegretMeasurement::contender(std::string_view implementation, const std::string& config) const {
  const manifest::Implementation* found = exact_.op.find(implementation);
  const auto parsed = found == nullptr ? std::nullopt : manifest::parse_config(*found, config);
  if (!parsed)
    throw Error(ErrorKind::not_tuned,
                fmt::format("{} has no implementation and config '{} {}'", op_.name, implementation, config));
  return {found, *parsed};
}

/// Returns the config that a launch takes once the bucket is tuned.
RegretMeasurement::Picked RegretMeasurement::pick_own(const Problem& problem) {
  const kiln::Demand demand{op_.name, problem};
  const TuneReport report = tuner_.tune({&demand, 1});
  if (report.interrupted) throw Error(ErrorKind::interrupted, "interrupted");
  if (const TunedBucket& bucket = report.buckets.front(); bucket.outcome == TunedBucket::Outcome::failed)
    throw Error(ErrorKind::not_tuned, bucket.reason);
  const Explanation found = engine_.explain(engine_.op(op_.name), problem);
  if (!is_hit(found.origin)) return pick_default(problem);
  return {contender(found.implementation, found.config), false};
}

/// The same for a record that is in no file.
RegretMeasurement::Picked RegretMeasurement::pick(Variant& variant, const Problem& problem) {
  const manifest::Bucket bucket = manifest::Site(variant.op, tools_.facts()).bucket_of(problem);
  const answer::Servings servings = answer::servings_of(bucket, tuned(variant, bucket));
  for (const auto* role : {&servings.fastest, &servings.without_library})
    for (const answer::Serving& each : *role)
      if (each.region.contains(variant.op, problem) && !each.broken_constraint(bucket, problem))
        return {contender(each.choice.implementation, each.choice.config), false};
  return pick_default(problem);
}

RegretMeasurement::Picked RegretMeasurement::pick_default(const Problem& problem) {
  const answer::Usable usual = answer::default_for({exact_.op, tools_.facts()}, problem);
  if (!usual) throw Error(ErrorKind::not_tuned, usual.why_not);
  return {usual, true};
}

std::vector<Regret> RegretMeasurement::at(const Problem& problem) {
  const store::Choice& own = tuned(exact_, {{exact_.op, tools_.facts()}, problem}).at_edge();
  std::vector<manifest::Variant> contenders{contender(own.implementation, own.config)};
  std::vector<std::size_t> places;  // index of each policy's config among the contenders
  std::vector<Regret> regrets;
  const manifest::BucketPolicy& own_policy = manifest::policy_of(op_, axis_, problem);
  for (std::size_t i = 0; i < policies_.size(); ++i) {
    const Picked picked = policies_[i] == own_policy ? pick_own(problem) : pick(variants_[i], problem);
    const auto known = std::ranges::find(contenders, picked.config);
    places.push_back(static_cast<std::size_t>(known - contenders.begin()));
    regrets.push_back({.policy = policies_[i].text(),
                       .problem = problem,
                       .length = problem.axes[axis_],
                       .edge = policies_[i].high(problem.axes[axis_], op_.axes[axis_].maximum),
                       .shared = picked.config.name(),
                       .own = contenders.front().name(),
                       .fell_back = picked.fell_back});
    if (known == contenders.end()) contenders.push_back(picked.config);
  }
  const auto timed = contest(tools_, {{exact_.op, tools_.facts()}, problem}, contenders);
  for (std::size_t i = 0; i < regrets.size(); ++i) {
    const Timed& shared = timed[places[i]];
    for (const Timed* each : {&shared, &timed.front()})
      if (!each->ok())
        throw Error(ErrorKind::wrong_result, fmt::format("at {} a config that was tuned is refused: {}",
                                                         manifest::display_text(op_, problem), each->reason));
    regrets[i].shared_ns = shared.cost.median_ns;
    regrets[i].own_ns = timed.front().cost.median_ns;
    if (places[i] != 0) regrets[i].regret = tune::ratio(shared.samples_ns, timed.front().samples_ns).median_ns - 1;
  }
  return regrets;
}

}  // namespace kiln::cli::bench
