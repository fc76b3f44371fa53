#include "plan/capture_launch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "answer/neighbours.hpp"
#include "cuda/stream_owner.hpp"
#include "kiln/error.hpp"
#include "plan/hit_path.hpp"
#include "plan/owner.hpp"
#include "plan/refused_launch.hpp"

namespace kiln::plan {
namespace {

/// Whether the problem is within `bucket`, a plan's Answer::at, for which its workspaces are sized.
bool covers(const manifest::Op& op, const Problem& bucket, const Problem& problem) {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (problem.axes[i] > bucket.axes[i]) return false;
  return true;
}

}  // namespace

bool fixed_alike(const manifest::Op& op, const Problem& a, const Problem& b) {
  if (a.selections != b.selections) return false;
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (manifest::is_exact(op, i, a) && a.axes[i] != b.axes[i]) return false;
  return true;
}

bool captures(const OpState& op_state, CUstream stream) {
  const cuda::Context::Scope scope(op_state.owner.context);
  cuda::require_own(op_state.owner.context, stream);
  const cuda::CaptureState found = cuda::capture_state(stream);
  if (found == cuda::CaptureState::excluded)
    throw Error(
        ErrorKind::capture,
        op_state.op.name +
            ": a launch on the legacy default stream would end the capture of a stream that is in order with it; launch on a stream made with CU_STREAM_NON_BLOCKING, or after the capture");
  return found == cuda::CaptureState::capturing;
}

std::vector<const PlanState*> loaded_fallbacks(OpState& op_state, const Problem& problem) {
  if (op_state.op.is_of_team()) return {};  // the other ranks would launch something else
  struct Near {
    const PlanState* plan;
    double distance;
  };
  std::vector<Near> near;
  const Problem bucket = manifest::bucket_of(op_state.op, problem);
  const auto add = [&](const PlanState& plan) {
    if (plan.needs.none() || covers(op_state.op, plan.answer.at, problem))
      near.push_back({&plan, answer::axis_distance(op_state.op, plan.bucket, bucket)});
  };
  op_state.plans.for_each([&](const BucketPlans& each) {
    if (!fixed_alike(op_state.op, each.resolution.bucket.edge, bucket)) return;
    const PlanState& by_size = each.edge->made_at(problem);
    add(by_size);
    for (const PlanState* plan : each.made())
      if (plan != &by_size) add(*plan);
  });
  std::ranges::stable_sort(near, {},
                           [](const Near& each) { return std::pair(each.distance, is_fallback(each.plan->origin)); });
  std::vector<const PlanState*> loaded;
  for (const Near& each : near) loaded.push_back(each.plan);
  return loaded;
}

Origin origin_of(const OpState& op_state, const PlanState& fallback, const Problem& problem) {
  if (fallback.bucket != manifest::bucket_of(op_state.op, problem)) return Origin::nearest;
  return fallback.of.is_settled_for(problem) ? fallback.origin : Origin::nearest;
}

Origin launch_in_capture(OpState& op_state, const Call& call, std::string_view missing) {
  const auto& [problem, arguments, stream] = call;
  require_tensors(op_state, problem, arguments);
  if (arguments.lengths_set != 0) check_lengths(op_state, arguments);
  const bool allowed = op_state.owner.options.on_miss != MissPolicy::error;
  const auto loaded = allowed ? loaded_fallbacks(op_state, problem) : std::vector<const PlanState*>();
  for (const PlanState* plan : loaded) {
    jit::CallFrame frame;
    if (!plan->executable.fill(frame, problem, arguments))
      throw Error(ErrorKind::bad_input, plan->executable.explain_frame(problem, arguments));
    // All passes are checked first, as a node that one of them adds to the graph cannot be removed.
    if (plan->executable.admits(frame, arguments) != jit::Admission::admitted ||
        !plan->executable.fits(frame, arguments))
      continue;
    if (run(op_state, *plan, frame, arguments, stream) != Run::launched) continue;
    const Origin origin = origin_of(op_state, *plan, problem);
    count(op_state, *plan, problem, origin);
    return origin;
  }
  throw Error(
      ErrorKind::capture,
      fmt::format(
          "{} {} cannot be captured: {}, and {}; nothing is tuned, compiled or loaded on a capturing stream. Call Engine::prepare with this problem and stream before the capture",
          op_state.op.name, manifest::display_text(op_state.op, problem), missing,
          allowed ? "nothing that is loaded can stand in" : "under MissPolicy::error nothing stands in"));
}

}  // namespace kiln::plan
