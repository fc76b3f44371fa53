#include "cli/bench/refinery.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "cli/interrupt.hpp"
#include "cli/tuning.hpp"
#include "engine/lease.hpp"
#include "kiln/error.hpp"
#include "store/splits.hpp"
#include "tune/guess.hpp"
#include "tune/model.hpp"

namespace kiln::cli::bench {
namespace {

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

constexpr int finer = 8;  // parts for one that is asked for, where the model says that it pays

bool is_of_one_part(ErrorKind kind) {
  return is_of_one_bucket(kind) || kind == ErrorKind::wrong_result || kind == ErrorKind::interrupted;
}

}  // namespace

std::int64_t top_part_from(const spec::Op& op, const Problem& bucket, int splits) {
  const std::size_t axis = spec::refined_axis(op).value();
  return top_part_from(spec::low_corner(op, bucket).axes[axis], bucket.axes[axis], op.axes[axis].multiple_of, splits);
}

Refinery::Refinery(engine::State& state, const OpBucket& bucket, const RefineChoice& choice)
    : state_(state),
      choice_(choice),
      tunes_(state, *bucket.op),
      op_(tunes_.op()),
      axis_(op_.axes[spec::refined_axis(op_).value()]),
      axis_index_(spec::refined_axis(op_).value()),
      facts_(state.context.info().facts),
      low_(spec::low_corner(op_, bucket.bucket).axes[axis_index_]) {
  result_.of = bucket;
}

RefinedBucket Refinery::run(const std::function<void(const std::string&)>& say) {
  const Problem& bucket = result_.of.bucket;
  engine::Lease lease(state_.layers, spec::record_key(op_, bucket, facts_, state_.options.regime), state_.holder);
  if (!lease.wait(Interrupt::requested)) throw Error(ErrorKind::interrupted, "interrupted");
  const auto lookup = engine::look_up(op_, bucket, facts_, state_.options.regime, state_.layers, false);
  if (!lookup.is_hit()) throw Error(ErrorKind::not_tuned, "the bucket has no record that can serve");
  if (lookup.passed_over)
    throw Error(ErrorKind::not_tuned, "its record is of a library that cannot serve here; tune it again, with --force");
  const std::vector<store::Record> beside = state_.layers.records_under(*lookup.record);
  const std::int64_t untried = store::untried_up_to(lookup.key, beside).value_or(0);
  if (!lookup.refinements.empty() && untried == 0) return found(lookup.refinements);
  own_ = upper_ = serving_of(lookup);
  auto cuts = cuts_of(low_, bucket.axes[axis_index_], axis_.multiple_of, finer * (choice_.most_parts + 1) - 1);
  std::erase_if(cuts, [&](std::int64_t cut) { return cut < choice_.lowest; });
  if (untried > 0) {
    std::erase_if(cuts, [&](std::int64_t cut) { return cut > untried; });
    if (cuts.empty() && !lookup.refinements.empty()) return found(lookup.refinements);
    resume(lookup, beside, untried);
  }
  const Splitting splitting = try_cuts(cuts, say);
  const std::vector<tune::LowerPart> parts = take(splitting, lookup);
  if (parts.empty() && splitting.ended_by) std::rethrow_exception(splitting.ended_by);
  if (!parts.empty() || resumed_) tune::publish_split(op_, facts_, state_.arch(), *lookup.record, parts, state_.cubins);
  if (splitting.ended_by) {
    result_.refining = Refining::partly;
    try {
      std::rethrow_exception(splitting.ended_by);
    } catch (const Error& error) {
      if (!is_of_one_part(error.kind())) throw;
      result_.why = fmt::format("not split up to {}={}: {}", axis_.name, splitting.ended_at, error.what());
    }
  } else if (!result_.parts.empty()) {
    result_.refining = Refining::split;
  } else {
    result_.why = why_whole(splitting);
  }
  return result_;
}

void Refinery::resume(const engine::Lookup& lookup, std::span<const store::Record> beside, std::int64_t untried) {
  resumed_ = true;
  const auto stored = [&](const std::string& key) -> std::optional<store::Record> {
    const auto found = std::ranges::find(beside, key, &store::Record::key);
    if (found == beside.end()) return std::nullopt;
    store::Record record = *found;
    record.candidates = state_.layers.candidates_of({record, lookup.record->layer});
    return record;
  };
  for (auto each = lookup.refinements.rbegin(); each != lookup.refinements.rend(); ++each) {
    const std::string key = spec::refined_key(lookup.key, axis_.name, each->edge);
    auto record = stored(key);
    if (each->edge <= untried || !record || record->samples == 0) continue;
    kept_.push_back({each->at, std::move(*record), stored(spec::runner_up_key(key))});
    upper_ = serving_of(engine::lower_part(lookup, *each));
  }
}

Splitting Refinery::try_cuts(std::span<const std::int64_t> cuts, const std::function<void(const std::string&)>& say) {
  const auto asked_for = cuts_of(low_, result_.of.bucket.axes[axis_index_], axis_.multiple_of, choice_.most_parts);
  const auto is_asked_for = [&](std::int64_t edge) { return std::ranges::find(asked_for, edge) != asked_for.end(); };
  const auto worth = [&](std::int64_t edge, const Serving& upper) {
    return is_asked_for(edge) || expected_gain(edge, upper.config) > choice_.threshold;
  };
  const auto tune = [&](std::int64_t edge) {
    say(fmt::format("tuning {}={}", axis_.name, edge));
    // A part that was asked for may reach down to the next of these; a finer one is for few sizes.
    const std::span<const std::int64_t> all = is_asked_for(edge) ? asked_for : cuts;
    const auto next = std::ranges::upper_bound(all, edge, std::greater<>());
    const std::int64_t lowest = next == all.end() ? low_ : *next + axis_.multiple_of;
    const ScratchTune& tuned = tunes_.at(with_size(edge), lowest);
    const auto& own = tuned.runner_up;
    return Serving{tuned.winner, own ? tunes_.contender(own->implementation, own->config) : Contender()};
  };
  const auto duel = [&](std::int64_t edge, const Serving& tuned, const Serving& upper) {
    say(fmt::format("comparing at {}={}", axis_.name, edge));
    return duel_at(edge, tuned, upper);
  };
  return split(cuts, upper_, choice_.threshold, worth, tune, duel);
}

/// Below the last edge the config of the part above it serves: where cuts were left untried, the bucket's own must come back.
std::vector<tune::LowerPart> Refinery::take(const Splitting& splitting, const engine::Lookup& lookup) {
  std::vector<tune::LowerPart> parts = std::move(kept_);
  const auto edge_of = [&](const tune::LowerPart& part) { return part.edge.axes[axis_index_]; };
  for (const tune::LowerPart& each : parts)
    result_.parts.push_back(
        {0, edge_of(each), fmt::format("{} {}", each.record.implementation, each.record.config), {}});
  const store::Record& of_bucket = lookup.record->value;
  for (const Tried& tried : splitting.tried) {
    if (!tried.is_kept) continue;
    parts.push_back({with_size(tried.edge), record_of(tried, of_bucket), runner_up_of(tried, of_bucket)});
    result_.parts.push_back({0, tried.edge, tried.tuned.config.name(), tried.duel.gain()});
  }
  std::ranges::reverse(result_.parts);
  std::int64_t low = splitting.ended_by ? splitting.ended_at + axis_.multiple_of : low_;
  for (Part& each : result_.parts) each.low = std::exchange(low, each.edge + axis_.multiple_of);
  if (!splitting.ended_by) return parts;
  auto rest = resumed_ || !splitting.tried.empty() ? untried(splitting.ended_at, lookup) : std::nullopt;
  if (!rest) return {};
  parts.push_back(std::move(*rest));
  return parts;
}

RefinedBucket Refinery::found(std::span<const tune::Refinement> stored) {
  result_.refining = Refining::found;
  std::int64_t low = low_;
  for (const tune::Refinement& each : stored) {
    result_.parts.push_back({low, each.edge, fmt::format("{} {}", each.record.implementation, each.record.config), {}});
    low = each.edge + axis_.multiple_of;
  }
  return result_;
}

std::string Refinery::why_whole(const Splitting& splitting) const {
  if (splitting.tried.empty())
    return choice_.lowest > low_ ? fmt::format("it was not to be cut below {}={}", axis_.name, choice_.lowest)
                                 : "it has one size only";
  std::string sizes;
  const Tried* best = nullptr;
  for (const Tried& tried : splitting.tried) {
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", tried.edge);
    if (tried.duel.rival != 0 && (best == nullptr || tried.duel.gain() > best->duel.gain())) best = &tried;
  }
  if (best == nullptr) return fmt::format("its config is the best at {}={} too", axis_.name, sizes);
  return fmt::format("at {}={} nothing is faster by more than the threshold; most gains {} at {}, {:.1f} %", axis_.name,
                     sizes, best->tuned.config.name(), best->edge, 100 * best->duel.gain());
}

Problem Refinery::with_size(std::int64_t size) const {
  Problem problem = result_.of.bucket;
  problem.axes[axis_index_] = size;
  return problem;
}

bool Refinery::is_legal(const Contender& contender, const Problem& problem) const {
  return contender.implementation != nullptr &&
         !spec::why_not_eligible(op_, *contender.implementation, problem, facts_) &&
         !spec::broken_constraint(op_, *contender.implementation, problem, facts_, contender.config);
}

/// 0.06: the model expects it to take 6 % longer at this size than the fastest. 0 of what has no model, infinite of what is not legal there.
double Refinery::expected_gain(std::int64_t size, const Contender& serving) const {
  const Problem problem = with_size(size);
  if (!is_legal(serving, problem)) return std::numeric_limits<double>::infinity();  // something else serves there
  if (!tune::has_model(*serving.implementation)) return 0;
  const Regime regime = state_.options.regime;
  const double served = tune::estimate(op_, *serving.implementation, problem, facts_, serving.config, regime).ns;
  return served / tune::fastest_expected(op_, problem, problem, facts_, regime).ns - 1;
}

Serving Refinery::serving_of(const engine::Lookup& part) const {
  const auto contender = [&](const store::Record& record) {
    return tunes_.contender(record.implementation, record.config);
  };
  return {contender(part.record->value), part.runner_up ? contender(part.runner_up->record) : Contender()};
}

Contender Refinery::default_at(const Problem& problem) const {
  const tune::Usable usual = tune::default_for(op_, problem, facts_);
  return {usual.implementation, usual.config};
}

Duel Refinery::duel_at(std::int64_t size, const Serving& tuned, const Serving& upper) const {
  if (Interrupt::requested()) throw Error(ErrorKind::interrupted, "interrupted");
  const Problem problem = with_size(size);
  const Contender standard = default_at(problem);
  Duel duel;
  duel.contenders = {tuned.config};
  for (const Contender* other : {&upper.config, &upper.runner_up, &standard, &tuned.runner_up})
    if (is_legal(*other, problem) && std::ranges::find(duel.contenders, *other) == duel.contenders.end())
      duel.contenders.push_back(*other);
  duel.timed = contest(state_, op_, problem, state_.options.regime, duel.contenders);
  if (!duel.timed.front().ok())
    throw Error(ErrorKind::wrong_result,
                fmt::format("{} was tuned for {} and cannot be compared there: {}", tuned.config.name(),
                            spec::to_string(op_, problem), duel.timed.front().reason));
  find_rival(duel, tuned, upper, standard);
  return duel;
}

/// Without times.
store::Record Refinery::record_at(std::int64_t edge, const Contender& serving, const store::Record& of_bucket) const {
  const Problem at = with_size(edge);
  store::Record record = of_bucket;
  record.key = spec::refined_key(of_bucket.key, axis_.name, edge);
  record.bucket = spec::to_string(op_, at);
  record.implementation = serving.implementation->name;
  record.config = spec::to_string(*serving.implementation, serving.config);
  record.baseline_ns = 0;
  record.samples = 0;
  record.candidates.clear();
  return record;
}

store::Record Refinery::record_of(const Tried& tried, const store::Record& of_bucket) {
  const Problem at = with_size(tried.edge);
  store::Record record = record_at(tried.edge, tried.tuned.config, of_bucket);
  const Contender& tuned = tried.tuned.config;
  record.source_digest = engine::present_source(op_, *tuned.implementation, at, facts_, tuned.config);
  record.provenance = tunes_.at(at).provenance;
  const Contender standard = default_at(at);
  for (std::size_t i = 0; i < tried.duel.timed.size(); ++i) {
    store::Candidate row = candidate_of(tried.duel.contenders[i], tried.duel.timed[i]);
    row.baseline = tried.duel.contenders[i] == standard;
    if (row.baseline) record.baseline_ns = row.cost_ns;
    record.candidates.push_back(std::move(row));
  }
  const tune::Cost& cost = tried.duel.timed.front().cost;
  record.cost_ns = cost.median_ns;
  record.low_ns = cost.low_ns;
  record.high_ns = cost.high_ns;
  record.samples = cost.samples;
  return record;
}

/// As it was tuned at the edge, where a library won there.
std::optional<store::Record> Refinery::runner_up_of(const Tried& tried, const store::Record& of_bucket) {
  if (!tried.duel.needs_runner_up) return std::nullopt;
  const Problem at = with_size(tried.edge);
  auto record = tunes_.at(at).runner_up;
  if (record) record->key = spec::runner_up_key(spec::refined_key(of_bucket.key, axis_.name, tried.edge));
  return record;
}

/// What serves without a split up to there, of no samples: the bucket's own config, with its time at the bucket's upper edge, and its
/// runner-up; where that cannot serve, the runner-up or the default, without times. Nothing where none of them can.
std::optional<tune::LowerPart> Refinery::untried(std::int64_t edge, const engine::Lookup& lookup) const {
  const Problem at = with_size(edge);
  const store::Record& of_bucket = lookup.record->value;
  const bool is_own = tune::usable(op_, at, facts_, of_bucket).implementation != nullptr;
  const bool has_runner_up = is_legal(own_.runner_up, at);
  const Contender serving = is_own ? own_.config : has_runner_up ? own_.runner_up : default_at(at);
  if (serving.implementation == nullptr) return std::nullopt;
  tune::LowerPart part{at, record_at(edge, serving, of_bucket), {}};
  part.record.provenance.strategy += fmt::format("; of the whole bucket, not tried up to {}={}", axis_.name, edge);
  if (!is_own) {
    part.record.cost_ns = part.record.low_ns = part.record.high_ns = 0;
    part.record.source_digest = engine::present_source(op_, *serving.implementation, at, facts_, serving.config);
  } else if (has_runner_up) {
    part.runner_up = lookup.runner_up->record;
    part.runner_up->key = spec::runner_up_key(part.record.key);
    part.runner_up->bucket = part.record.bucket;
    part.runner_up->samples = 0;
  }
  return part;
}

}  // namespace kiln::cli::bench
