// What a capture would find: made ready ahead of it, or only looked at.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cuda/stream_owner.hpp"
#include "engine/op_state.hpp"
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

OpState::Served OpState::served(const BucketPlans& of, const Problem& problem, bool own_only, std::size_t from) const {
  Served found{of.answers().size(), nullptr, {}};
  for (std::size_t i = from; i < of.answers().size(); ++i) {
    const Answer& answer = of.answers()[i];
    const PlanSlot& slot = of.slot(i);
    const bool cannot_be_made = slot.settled.load(std::memory_order_acquire) && slot.plan == nullptr;
    if (cannot_be_made || (own_only && answer.implementation->is_library())) continue;
    if (!answer.region.contains(op, problem)) continue;
    if (found.first == nullptr) found.first = &answer;
    const auto refused = why_not(op, answer, problem, engine.context.info().facts);
    if (refused && found.first == &answer) found.refused = *refused;
    if (refused) continue;
    found.index = i;
    break;
  }
  return found;
}

std::string OpState::why_not_ready(const Problem& problem) const {
  const Resolution resolution = resolve(problem, false);
  const Answer* answer = serving(op, resolution, problem, engine.context.info().facts);
  if (answer != nullptr && answer->is_hit())
    return fmt::format("its record of the {}, {}, is not loaded", to_string(answer->origin), name_of(*answer));
  if (resolution.is_hit()) return "its record is not loaded";
  return resolution.unusable.empty() ? "its bucket has no record"
                                     : "its bucket's record cannot serve: " + resolution.unusable;
}

const PlanState* OpState::describe_plan(Gap& gap, BucketPlans& of, const Problem& problem) const {
  const Served found = served(of, problem);
  const bool serves = found.index < of.answers().size();
  const Answer* const answer = serves ? &of.answers()[found.index] : nullptr;
  const PlanState* const plan = serves ? of.slot(found.index).made() : nullptr;
  const bool is_plain_hit = plan != nullptr && answer->is_hit();
  if (found.first == nullptr) {
    gap.why = "no config is legal there";
  } else if (!found.refused.empty() && !is_plain_hit) {
    gap.why =
        fmt::format("{} {}, and {}", name_of(*found.first), found.refused,
                    answer == nullptr                    ? "no default is legal there"
                    : answer->origin == Origin::default_ ? "the default of " + answer->implementation->name + " serves"
                                                         : name_of(*answer) + " serves");
    if (answer != nullptr && plan == nullptr) gap.why += ", which is not loaded";
  } else if (plan == nullptr) {
    gap.why = name_of(*answer) + " serves, which is not loaded";
  } else if (is_stand_in(answer->origin)) {
    gap.why = fmt::format("its bucket has no record; {} stands in", name_of(*answer));
  }
  return plan;
}

std::optional<Gap> OpState::gap_of(const Problem& problem, std::optional<CUstream> stream) {
  Gap gap;
  gap.op = op.name;
  gap.problem = spec::to_string(op, problem);
  const Problem bucket = spec::bucket_of(op, problem);
  gap.bucket = spec::to_string(op, bucket);
  const PlanState* plan = nullptr;
  if (const PlanState* edge = plans.hot.find(bucket))
    plan = describe_plan(gap, edge->of, problem);
  else
    gap.why = why_not_ready(problem);
  if (plan != nullptr && stream && !plan->workspaces->serves(*stream)) {
    gap.workspace_missing = true;
    join(gap.why, name_of(plan->answer) + " has no workspace for this stream");
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
      const Answer& answer = each->answer;
      if (spec::broken_constraint(op, *answer.implementation, problem, engine.context.info().facts, answer.config))
        continue;
      gap.serves = origin_of(*each, problem);
      return join(gap.why, fmt::format("in a capture {} of {} would stand in", name_of(answer),
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
  plans.for_each([&](const BucketPlans& each) {
    if (plans.hot.find(each.resolution.bucket) == each.edge) buckets.push_back(each.resolution.bucket);
  });
  for (const Problem& bucket : buckets) add(coverage, gap_of(bucket, std::nullopt));
}

/// What stand-ins need compiled, all at once.
void OpState::begin_compiles(std::span<const Problem> problems) {
  const bool stand_ins =
      engine.options.on_miss == MissPolicy::nearest || engine.options.on_miss == MissPolicy::background;
  if (!stand_ins) return;
  std::vector<Problem> seen;
  for (const Problem& problem : problems) {
    if (!spec::is_valid(op, problem)) continue;
    const Problem bucket = spec::bucket_of(op, problem);
    if (plans.hot.find(bucket) != nullptr || std::find(seen.begin(), seen.end(), bucket) != seen.end()) continue;
    seen.push_back(bucket);
    plans.begin_compiles(resolve(bucket, true));
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
      if (plans.hot.find(bucket) == nullptr) failed.emplace_back(bucket, failure);
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
