#include "cli/bench/refinery.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/judge.hpp"
#include "cli/interrupt.hpp"
#include "cli/tuning.hpp"
#include "engine/lease.hpp"
#include "kiln/error.hpp"

namespace kiln::cli::bench {
namespace {

constexpr int most_probes = 6;  // the edge of (4096, 8192] to within 64

store::Candidate candidate_of(const Contender& contender, const Timed& timed) {
  store::Candidate row;
  row.implementation = contender.implementation->name;
  row.config = spec::to_string(*contender.implementation, contender.config);
  row.verdict = timed.verdict;
  row.reason = timed.reason;
  if (!timed.ok()) return row;
  row.cost_ns = timed.cost.median_ns;
  row.low_ns = timed.cost.low_ns;
  row.high_ns = timed.cost.high_ns;
  row.samples = timed.cost.samples;
  return row;
}

}  // namespace

std::int64_t last_winning(std::int64_t low, std::int64_t high, std::int64_t step, int probes,
                          const std::function<bool(std::int64_t)>& wins) {
  for (; probes > 0 && high - low > step; --probes) {
    const std::int64_t middle = low + std::max(step, (high - low) / 2 / step * step);
    (wins(middle) ? low : high) = middle;
  }
  return low;
}

double Refinery::Duel::gain() const { return tune::ratio(timed[1].samples_ns, timed[0].samples_ns).median_ns - 1; }

bool Refinery::Duel::is_won_by(double tolerance) const {
  return is_fought() && is_slower(timed[1].samples_ns, timed[0].samples_ns, tolerance);
}

Refinery::Refinery(engine::State& state, const OpBucket& bucket)
    : state_(state),
      op_(*bucket.op),
      axis_(spec::refined_axis(op_).value()),
      facts_(state.context.info().facts),
      tunes_(state, op_) {
  result_.of = bucket;
}

RefinedBucket Refinery::run(double threshold, int most_parts, const Say& say) {
  const Problem& bucket = result_.of.bucket;
  engine::Lease lease(state_.layers, spec::record_key(op_, bucket, facts_, state_.options.regime), state_.holder);
  if (!lease.wait(Interrupt::requested)) throw Error(ErrorKind::interrupted, "interrupted");
  const auto lookup = engine::look_up(op_, bucket, facts_, state_.options.regime, state_.layers, false);
  if (!lookup.is_hit()) throw Error(ErrorKind::not_tuned, "the bucket has no record that can serve");
  if (!lookup.refinements.empty()) return found(lookup.refinements);
  own_ = tunes_.contender(lookup.record->value.implementation, lookup.record->value.config);
  const std::int64_t high = bucket.axes[axis_], step = op_.axes[axis_].multiple_of;
  std::int64_t low = spec::low_corner(op_, bucket).axes[axis_];
  if (low >= high) result_.why = "it has one size only";
  for (int i = 0; i < most_parts && low < high; ++i) {
    try {
      if (!split_off(low, threshold, lookup.record->value, say)) break;
    } catch (const Error& error) {  // of this part: those before it were measured
      const bool of_part = is_of_one_bucket(error.kind()) || error.kind() == ErrorKind::wrong_result;
      if (lower_parts_.empty() || !of_part || error.kind() == ErrorKind::interrupted) throw;
      break;
    }
    low = result_.parts.back().edge + step;
  }
  if (lower_parts_.empty()) return result_;
  publish(*lookup.record);
  result_.refining = Refining::split;
  return result_;
}

bool Refinery::split_off(std::int64_t low, double threshold, const store::Record& of_bucket, const Say& say) {
  const std::string& axis = op_.axes[axis_].name;
  Part part;
  part.low = low;
  const auto nothing = [&](const char* why) {
    result_.why = why;
    if (result_.parts.empty()) result_.parts.push_back(part);
    return false;
  };
  say(fmt::format("tuning {}={}", axis, low));
  lower_ = tunes_.at(with_size(low)).winner;
  if (lower_ == own_) return nothing("its config is the best at its lowest size too");
  part.config = lower_.name();
  const Duel lowest = duel_at(low);
  if (lowest.is_fought()) part.low_gain = lowest.gain();
  if (!lowest.is_won_by(threshold)) return nothing("at its lowest size nothing is faster by more than the threshold");
  const auto wins = [&](std::int64_t size) {
    say(fmt::format("comparing at {}={}", axis, size));
    return duel_at(size).is_won_by(0);
  };
  part.edge = last_winning(low, result_.of.bucket.axes[axis_], op_.axes[axis_].multiple_of, most_probes, wins);
  tune::LowerPart lower{with_size(part.edge), record_of(part, of_bucket)};
  if (!result_.parts.empty() && result_.parts.back().config == part.config) {  // one part, which noise had ended early
    part.low = result_.parts.back().low;
    part.low_gain = result_.parts.back().low_gain;
    result_.parts.pop_back();
    lower_parts_.pop_back();
  }
  lower_parts_.push_back(std::move(lower));
  result_.parts.push_back(std::move(part));
  return true;
}

RefinedBucket Refinery::found(std::span<const tune::Refinement> stored) {
  result_.refining = Refining::found;
  std::int64_t low = spec::low_corner(op_, result_.of.bucket).axes[axis_];
  for (const tune::Refinement& each : stored) {
    result_.parts.push_back(
        {low, each.edge, fmt::format("{} {}", each.record.implementation, each.record.config), 0, 0});
    low = each.edge + op_.axes[axis_].multiple_of;
  }
  return result_;
}

Problem Refinery::with_size(std::int64_t size) const {
  Problem problem = result_.of.bucket;
  problem.axes[axis_] = size;
  return problem;
}

bool Refinery::is_legal(const Contender& contender, const Problem& problem) const {
  return !spec::why_not_eligible(tunes_.op(), *contender.implementation, problem, facts_) &&
         !spec::broken_constraint(tunes_.op(), *contender.implementation, problem, facts_, contender.config);
}

/// Where the bucket's own config is not legal the default serves, and is what there is to beat.
Refinery::Duel Refinery::duel_at(std::int64_t size, bool with_default) const {
  if (Interrupt::requested()) throw Error(ErrorKind::interrupted, "interrupted");
  const Problem problem = with_size(size);
  Duel duel;
  if (!is_legal(lower_, problem)) return duel;
  duel.contenders = {lower_};
  const tune::Usable usual = tune::default_for(tunes_.op(), problem, facts_);
  const Contender standard{usual.implementation, usual.config};
  if (is_legal(own_, problem))
    duel.contenders.push_back(own_);
  else if (standard.implementation != nullptr)
    duel.contenders.push_back(standard);
  const bool is_new = std::find(duel.contenders.begin(), duel.contenders.end(), standard) == duel.contenders.end();
  if (with_default && standard.implementation != nullptr && is_new) duel.contenders.push_back(standard);
  duel.timed = contest(state_, tunes_.op(), problem, state_.options.regime, duel.contenders);
  return duel;
}

store::Record Refinery::record_of(Part& part, const store::Record& of_bucket) {
  const Problem at = with_size(part.edge);
  const Duel duel = duel_at(part.edge, true);
  if (!duel.is_fought())
    throw Error(ErrorKind::wrong_result, fmt::format("at {} the two configs cannot be compared any more: {}",
                                                     spec::to_string(op_, at), duel.timed.front().reason));
  part.edge_gain = duel.gain();
  const spec::Implementation& implementation = *op_.find(lower_.implementation->name);
  store::Record record = of_bucket;
  record.key = spec::refined_key(of_bucket.key, op_.axes[axis_].name, part.edge);
  record.bucket = spec::to_string(op_, at);
  record.implementation = implementation.name;
  record.config = spec::to_string(implementation, lower_.config);
  record.source_digest = engine::present_source(op_, implementation, at, facts_, lower_.config);
  record.provenance = tunes_.at(with_size(part.low)).provenance;
  record.provenance.strategy += fmt::format(" at {}={}, bisected", op_.axes[axis_].name, part.low);
  record.baseline_ns = 0;
  record.candidates.clear();
  const tune::Usable usual = tune::default_for(tunes_.op(), at, facts_);
  for (std::size_t i = 0; i < duel.timed.size(); ++i) {
    store::Candidate row = candidate_of(duel.contenders[i], duel.timed[i]);
    row.baseline = duel.contenders[i] == Contender{usual.implementation, usual.config};
    if (row.baseline) record.baseline_ns = row.cost_ns;
    record.candidates.push_back(std::move(row));
  }
  const tune::Cost& cost = duel.timed.front().cost;
  record.cost_ns = cost.median_ns;
  record.low_ns = cost.low_ns;
  record.high_ns = cost.high_ns;
  record.samples = cost.samples;
  return record;
}

void Refinery::publish(store::Found<store::Record> of_bucket) {
  of_bucket.value.candidates = state_.layers.candidates_of(of_bucket);
  tune::publish_split(op_, facts_, state_.arch(), of_bucket.value, lower_parts_, state_.cubins);
}

}  // namespace kiln::cli::bench
