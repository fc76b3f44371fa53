#include "engine/coverage.hpp"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "cuda/stream_owner.hpp"
#include "engine/miss_path.hpp"
#include "engine/state.hpp"
#include "engine/team/agree.hpp"
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

std::string why_not_ready(const plan::OpState& op_state, const Problem& problem) {
  const answer::Resolution resolution = op_state.resolve(problem, false);
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
  } else if (of.stand_in == found.index) {
    gap.why = fmt::format("its machine code is being compiled; {} stands in", answer->name());
  } else if (is_fallback(answer->origin)) {
    gap.why = fmt::format("its bucket has no record; {} stands in", answer->name());
  }
  return plan;
}

/// Sets gap.serves to what would serve the problem in a capture.
void describe_fallback(plan::OpState& op_state, Gap& gap, const Problem& problem) {
  if (op_state.owner.options.on_miss != MissPolicy::error)
    for (const plan::PlanState* each : plan::loaded_fallbacks(op_state, problem)) {
      const answer::Answer& answer = each->answer;
      if (answer.broken_constraint(op_state.site(), problem)) continue;
      gap.serves = plan::origin_of(op_state, *each, problem);
      return join(gap.why, fmt::format("in a capture {} of {} would stand in", answer.name(),
                                       manifest::display_text(op_state.op, each->bucket)));
    }
  join(gap.why, "a capture would be refused it");
}

/// Returns nothing for a hit. Without a stream, workspaces are ignored.
std::optional<Gap> gap_of(plan::OpState& op_state, const Problem& problem, std::optional<CUstream> stream) {
  Gap gap;
  gap.op = op_state.op.name;
  gap.problem = manifest::display_text(op_state.op, problem);
  const Problem bucket = manifest::bucket_of(op_state.op, problem);
  gap.bucket = manifest::display_text(op_state.op, bucket);
  const plan::PlanState* plan = nullptr;
  if (const plan::PlanState* edge = op_state.plans.hot.find(bucket))
    plan = describe_plan(gap, edge->of, problem);
  else
    gap.why = why_not_ready(op_state, problem);
  if (plan != nullptr && stream) {
    const cuda::Context::Scope scope(op_state.owner.context);
    gap.workspace_missing = !op_state.owner.workspaces->serves(*stream, plan->needs);
  }
  if (gap.workspace_missing) join(gap.why, plan->answer.name() + " has no workspace for this stream yet");
  if (plan != nullptr && gap.why.empty()) return std::nullopt;
  if (plan != nullptr)
    gap.serves = plan->origin;
  else if (stream)
    describe_fallback(op_state, gap, problem);
  return gap;
}

/// gap_of(), and nothing for a size of 0; for a problem that the op does not have, a gap with the error as its reason.
std::optional<Gap> checked_gap_of(plan::OpState& op_state, const Problem& problem, CUstream stream) {
  try {
    manifest::check_problem(op_state.op, problem, manifest::Zeros::taken);
  } catch (const Error& error) {
    Gap gap;
    gap.op = op_state.op.name;
    gap.why = error.what();
    return gap;
  }
  if (manifest::is_empty(op_state.op, problem)) return std::nullopt;
  return gap_of(op_state, problem, stream);
}

/// Begins all compiles that the problems' fallbacks need.
void begin_compiles(plan::OpState& op_state, std::span<const Problem> problems) {
  if (!op_state.takes_fallbacks()) return;
  std::unordered_set<Problem, manifest::ProblemHash> seen;
  for (const Problem& problem : problems) {
    if (!manifest::is_valid(op_state.op, problem)) continue;
    const Problem bucket = manifest::bucket_of(op_state.op, problem);
    if (op_state.plans.hot.find(bucket) == nullptr && seen.insert(bucket).second)
      op_state.plans.begin_compiles(op_state.resolve(bucket, true));
  }
}

}  // namespace

Coverage cover(plan::OpState& op_state, std::span<const Problem> problems, CUstream stream) {
  cuda::require_not_forked();
  Coverage coverage;
  for (const Problem& problem : problems) add(coverage, checked_gap_of(op_state, problem, stream));
  return coverage;
}

void cover_ready(plan::OpState& op_state, Coverage& coverage) {
  std::vector<Problem> buckets;
  op_state.plans.for_each([&](const plan::BucketPlans& each) {
    const Problem& edge = each.resolution.bucket.edge;
    if (op_state.plans.hot.find(edge) == each.edge) buckets.push_back(edge);
  });
  for (const Problem& bucket : buckets) add(coverage, gap_of(op_state, bucket, std::nullopt));
}

Coverage prepare_all(plan::OpState& op_state, std::span<const Problem> problems, CUstream stream) {
  {
    const cuda::Context::Scope scope(op_state.owner.context);
    cuda::require_own(op_state.owner.context, stream);
    if (cuda::capture_state(stream) == cuda::CaptureState::capturing)
      throw Error(
          ErrorKind::capture,
          op_state.op.name +
              ": Engine::prepare was given a stream that is capturing, and nothing is made ready then; call it before the capture");
  }
  begin_compiles(op_state, problems);
  std::optional<KeptTrialWorkers> kept;
  if (op_state.op.is_of_team()) kept.emplace(engine_of(op_state));
  std::unordered_map<Problem, std::string, manifest::ProblemHash> failed;  // buckets, and why: none is tried twice
  std::vector<std::string> failures;                                       // by problem
  for (const Problem& problem : problems) {
    std::string& failure = failures.emplace_back();
    if (!manifest::is_valid(op_state.op, problem)) continue;
    const Problem bucket = manifest::bucket_of(op_state.op, problem);
    if (const auto before = failed.find(bucket); before != failed.end()) {
      failure = before->second;
      continue;
    }
    try {
      make_ready(op_state, problem, stream);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      failure = error.what();
      if (op_state.plans.hot.find(bucket) == nullptr) failed.emplace(bucket, failure);
    }
  }
  Coverage coverage;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    auto gap = checked_gap_of(op_state, problems[i], stream);
    if (gap && !failures[i].empty()) gap->why = failures[i] + "; " + gap->why;
    add(coverage, std::move(gap));
  }
  return coverage;
}

}  // namespace kiln::engine
