#include "engine/coverage.hpp"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "cuda/stream_owner.hpp"
#include "engine/miss_path.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "plan/capture_launch.hpp"

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

std::string why_not_ready(const plan::OpState& state, const Problem& problem) {
  const answer::Resolution resolution = state.resolve(problem, false);
  const answer::Answer* answer = resolution.first(problem).serves;
  if (answer != nullptr && answer->is_hit())
    return fmt::format("its record of the {}, {}, is not loaded", to_string(answer->origin), answer->name());
  if (resolution.is_hit()) return "its record is not loaded";
  return resolution.unusable.empty() ? "its bucket has no record"
                                     : "its bucket's record cannot serve: " + resolution.unusable;
}

/// Returns the plan of a loaded bucket that serves the problem, null where it is not loaded. Sets gap.why where that is
/// no hit.
const plan::PlanState* describe_plan(Gap& gap, plan::BucketPlans& of, const Problem& problem) {
  const answer::Resolution::First found = of.first(problem);
  const answer::Answer* const answer = found.serves;
  const plan::PlanState* const plan = answer == nullptr ? nullptr : of.slot(found.index).made();
  const bool is_plain_hit = plan != nullptr && answer->is_hit();
  if (answer == nullptr && found.passed_over.empty()) {
    gap.why = "no config is legal there";
  } else if (!found.passed_over.empty() && !is_plain_hit) {
    const auto& [wanted, why_not] = found.passed_over.front();
    gap.why =
        fmt::format("{} {}, and {}", wanted->name(), why_not,
                    answer == nullptr                    ? "no default is legal there"
                    : answer->origin == Origin::default_ ? "the default of " + answer->implementation->name + " serves"
                                                         : answer->name() + " serves");
    if (answer != nullptr && plan == nullptr) gap.why += ", which is not loaded";
  } else if (plan == nullptr) {
    gap.why = answer->name() + " serves, which is not loaded";
  } else if (is_fallback(answer->origin)) {
    gap.why = fmt::format("its bucket has no record; {} stands in", answer->name());
  }
  return plan;
}

/// Sets gap.serves to what would serve the problem in a capture.
void describe_fallback(plan::OpState& state, Gap& gap, const Problem& problem) {
  if (state.owner.options.on_miss != MissPolicy::error)
    for (const plan::PlanState* each : plan::loaded_fallbacks(state, problem)) {
      const answer::Answer& answer = each->answer;
      if (answer.broken_constraint(state.site(), problem)) continue;
      gap.serves = plan::origin_of(state, *each, problem);
      return join(gap.why, fmt::format("in a capture {} of {} would stand in", answer.name(),
                                       manifest::display_text(state.op, each->bucket)));
    }
  join(gap.why, "a capture would be refused it");
}

/// Returns nothing for a hit. Without a stream, workspaces are ignored.
std::optional<Gap> gap_of(plan::OpState& state, const Problem& problem, std::optional<CUstream> stream) {
  Gap gap;
  gap.op = state.op.name;
  gap.problem = manifest::display_text(state.op, problem);
  const Problem bucket = manifest::bucket_of(state.op, problem);
  gap.bucket = manifest::display_text(state.op, bucket);
  const plan::PlanState* plan = nullptr;
  if (const plan::PlanState* edge = state.plans.hot.find(bucket))
    plan = describe_plan(gap, edge->of, problem);
  else
    gap.why = why_not_ready(state, problem);
  if (plan != nullptr && stream) {
    const cuda::Context::Scope scope(state.owner.context);
    gap.workspace_missing = !state.owner.workspaces->serves(*stream, plan->needs);
  }
  if (gap.workspace_missing) join(gap.why, plan->answer.name() + " has no workspace for this stream yet");
  if (plan != nullptr && gap.why.empty()) return std::nullopt;
  if (plan != nullptr)
    gap.serves = plan->origin;
  else if (stream)
    describe_fallback(state, gap, problem);
  return gap;
}

/// gap_of(), and nothing for a size of 0; for a problem that the op does not have, a gap with the error as its reason.
std::optional<Gap> checked_gap_of(plan::OpState& state, const Problem& problem, CUstream stream) {
  try {
    manifest::check_problem(state.op, problem, manifest::Zeros::taken);
  } catch (const Error& error) {
    Gap gap;
    gap.op = state.op.name;
    gap.why = error.what();
    return gap;
  }
  if (manifest::is_empty(state.op, problem)) return std::nullopt;
  return gap_of(state, problem, stream);
}

/// Begins all compiles that the problems' fallbacks need.
void begin_compiles(plan::OpState& state, std::span<const Problem> problems) {
  if (!state.takes_fallbacks()) return;
  std::unordered_set<Problem, manifest::ProblemHash> seen;
  for (const Problem& problem : problems) {
    if (!manifest::is_valid(state.op, problem)) continue;
    const Problem bucket = manifest::bucket_of(state.op, problem);
    if (state.plans.hot.find(bucket) == nullptr && seen.insert(bucket).second)
      state.plans.begin_compiles(state.resolve(bucket, true));
  }
}

}  // namespace

Coverage cover(plan::OpState& state, std::span<const Problem> problems, CUstream stream) {
  cuda::require_not_forked();
  Coverage coverage;
  for (const Problem& problem : problems) add(coverage, checked_gap_of(state, problem, stream));
  return coverage;
}

void cover_ready(plan::OpState& state, Coverage& coverage) {
  std::vector<Problem> buckets;
  state.plans.for_each([&](const plan::BucketPlans& each) {
    const Problem& edge = each.resolution.bucket.edge;
    if (state.plans.hot.find(edge) == each.edge) buckets.push_back(edge);
  });
  for (const Problem& bucket : buckets) add(coverage, gap_of(state, bucket, std::nullopt));
}

Coverage prepare_all(plan::OpState& state, std::span<const Problem> problems, CUstream stream) {
  {
    const cuda::Context::Scope scope(state.owner.context);
    cuda::require_own(state.owner.context, stream);
    if (cuda::capture_state(stream) == cuda::CaptureState::capturing)
      throw Error(
          ErrorKind::capture,
          state.op.name +
              ": Engine::prepare was given a stream that is capturing, and nothing is made ready then; call it before the capture");
  }
  begin_compiles(state, problems);
  std::unordered_map<Problem, std::string, manifest::ProblemHash> failed;  // buckets, and why: none is tried twice
  std::vector<std::string> failures;                                       // by problem
  for (const Problem& problem : problems) {
    std::string& failure = failures.emplace_back();
    if (!manifest::is_valid(state.op, problem)) continue;
    const Problem bucket = manifest::bucket_of(state.op, problem);
    if (const auto before = failed.find(bucket); before != failed.end()) {
      failure = before->second;
      continue;
    }
    try {
      make_ready(state, problem, stream);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      failure = error.what();
      if (state.plans.hot.find(bucket) == nullptr) failed.emplace(bucket, failure);
    }
  }
  Coverage coverage;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    auto gap = checked_gap_of(state, problems[i], stream);
    if (gap && !failures[i].empty()) gap->why = failures[i] + "; " + gap->why;
    add(coverage, std::move(gap));
  }
  return coverage;
}

}  // namespace kiln::engine
