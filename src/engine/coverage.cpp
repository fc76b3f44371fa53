// What a capture would find: made ready ahead of it, or only looked at.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cuda/stream_owner.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {
namespace {

void add(Coverage& coverage, std::optional<Gap> gap) {
  ++coverage.total;
  if (gap)
    coverage.gaps.push_back(std::move(*gap));
  else
    ++coverage.hits;
}

void join(std::string& sentence, const std::string& more) { sentence += (sentence.empty() ? "" : "; ") + more; }

}  // namespace

std::optional<std::string> OpState::broken_constraint(const PlanState& plan, const Problem& problem) const {
  return spec::broken_constraint(op, *plan.described, problem, engine.context.info().facts, plan.values);
}

std::string OpState::why_not_ready(const Problem& problem) const {
  const Lookup lookup = look_up(op, problem, engine.context.info().facts, engine.options.regime, engine.layers, false);
  if (lookup.is_hit())
    return fmt::format("its record of the {}, {} {}, is not loaded", to_string(lookup.origin),
                       lookup.implementation->name, spec::to_string(*lookup.implementation, lookup.config));
  return lookup.record_unusable.empty() ? "its bucket has no record"
                                        : "its bucket's record cannot serve: " + lookup.record_unusable;
}

/// Nothing for a hit. Without a stream, workspaces are left out.
std::optional<Gap> OpState::gap_of(const Problem& problem, std::optional<CUstream> stream) {
  Gap gap;
  gap.op = op.name;
  gap.problem = spec::to_string(op, problem);
  const Problem bucket = spec::bucket_of(op, problem);
  gap.bucket = spec::to_string(op, bucket);
  const PlanState* whole = hot.find(bucket);
  const PlanState* plan = whole != nullptr ? &serving(whole->at(problem), problem) : nullptr;
  if (plan == nullptr) {
    gap.why = why_not_ready(problem);
  } else if (const auto broken = broken_constraint(*plan, problem)) {
    const spec::Implementation* other = default_at(problem);
    gap.why = fmt::format("{} {} breaks the constraint '{}' at this size, and {}", plan->implementation, plan->config,
                          *broken,
                          other == nullptr ? "no default is legal there" : "the default of " + other->name + " serves");
    plan = other != nullptr ? loaded_fallback(*other, bucket) : nullptr;
    if (other != nullptr && plan == nullptr) gap.why += ", which is not loaded";
  } else if (is_stand_in(plan->origin)) {
    gap.why = fmt::format("its bucket has no record; {} {} stands in", plan->implementation, plan->config);
  }
  if (plan != nullptr && stream && !plan->workspaces->serves(*stream)) {
    gap.workspace_missing = true;
    join(gap.why, fmt::format("{} {} has no workspace for this stream", plan->implementation, plan->config));
    plan = nullptr;
  }
  if (plan != nullptr && gap.why.empty()) return std::nullopt;
  if (plan != nullptr)
    gap.serves = plan->origin;
  else if (stream)
    describe_stand_in(gap, problem, *stream);
  return gap;
}

/// What a capture would make do with.
void OpState::describe_stand_in(Gap& gap, const Problem& problem, CUstream stream) {
  if (engine.options.on_miss != MissPolicy::error)
    for (const PlanState* each : stand_ins(problem, stream)) {
      if (broken_constraint(*each, problem)) continue;
      gap.serves = origin_of(*each, problem);
      return join(gap.why, fmt::format("in a capture {} {} of {} would stand in", each->implementation, each->config,
                                       spec::to_string(op, each->bucket)));
    }
  join(gap.why, "a capture would be refused it");
}

/// The gap of a problem that may be none of the op's, whose error is then the reason.
std::optional<Gap> OpState::checked_gap_of(const Problem& problem, CUstream stream) {
  try {
    spec::check_problem(op, problem);
  } catch (const Error& error) {
    Gap gap;
    gap.op = op.name;
    gap.why = error.what();
    return gap;
  }
  return gap_of(problem, stream);
}

Coverage OpState::cover(std::span<const Problem> problems, CUstream stream) {
  Coverage coverage;
  for (const Problem& problem : problems) add(coverage, checked_gap_of(problem, stream));
  return coverage;
}

void OpState::cover_ready(Coverage& coverage) {
  std::vector<Problem> buckets;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& plan : plans_)
      if (hot.find(plan->bucket) == plan.get()) buckets.push_back(plan->bucket);
  }
  for (const Problem& bucket : buckets) add(coverage, gap_of(bucket, std::nullopt));
}

/// What stand-ins need compiled, all at once.
void OpState::begin_compiles(std::span<const Problem> problems) {
  const bool stand_ins =
      engine.options.on_miss == MissPolicy::nearest || engine.options.on_miss == MissPolicy::background;
  if (!stand_ins || !engine.cubins.can_compile()) return;
  std::vector<Problem> seen;
  for (const Problem& problem : problems) {
    if (!spec::is_valid(op, problem)) continue;
    const Problem bucket = spec::bucket_of(op, problem);
    if (hot.find(bucket) != nullptr || std::find(seen.begin(), seen.end(), bucket) != seen.end()) continue;
    seen.push_back(bucket);
    const spec::DeviceFacts& facts = engine.context.info().facts;
    const Lookup lookup = look_up(op, problem, facts, engine.options.regime, engine.layers);
    const auto begin = [&](const Problem& at, const spec::Implementation& implementation, const spec::Config& config) {
      const auto frame = spec::make_frame(op, &implementation, at, facts, config);
      engine.cubins.prefetch(jit::specialise(op, implementation, frame, engine.arch()));
    };
    if (lookup.implementation != nullptr) begin(bucket, *lookup.implementation, lookup.config);
    if (const auto& other = lookup.runner_up) begin(other->at, *other->usable.implementation, other->usable.config);
  }
}

Coverage OpState::prepare_all(std::span<const Problem> problems, CUstream stream) {
  {
    const cuda::Context::Scope scope(engine.context);
    cuda::require_own(engine.context, stream);
    if (cuda::capture_state(stream) == cuda::CaptureState::capturing)
      throw Error(
          ErrorKind::capture,
          op.name +
              ": Engine::prepare was given a stream that is capturing, and nothing is made ready then; call it before the capture");
  }
  begin_compiles(problems);
  std::vector<std::pair<Problem, std::string>> failed;  // buckets, and why: none is tried twice
  std::vector<std::string> failures;                    // by problem
  for (const Problem& problem : problems) {
    std::string& failure = failures.emplace_back();
    if (!spec::is_valid(op, problem)) continue;
    const Problem bucket = spec::bucket_of(op, problem);
    const auto before = std::ranges::find(failed, bucket, &std::pair<Problem, std::string>::first);
    if (before != failed.end()) {
      failure = before->second;
      continue;
    }
    try {
      make_ready(problem, stream);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      failure = error.what();
      if (hot.find(bucket) == nullptr) failed.emplace_back(bucket, failure);
    }
  }
  Coverage coverage;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    auto gap = checked_gap_of(problems[i], stream);
    if (gap && !failures[i].empty()) gap->why = failures[i] + "; " + gap->why;
    add(coverage, std::move(gap));
  }
  return coverage;
}

}  // namespace kiln::engine
