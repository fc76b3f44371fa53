// A stream that captures a graph, and something is not ready: nothing is tuned, compiled, loaded, allocated or waited for. What is loaded
// stands in, or the call is refused; either way the capture goes on.
#include <fmt/format.h>

#include <algorithm>

#include "cuda/stream_owner.hpp"
#include "engine/op_state.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "tune/neighbours.hpp"

namespace kiln::engine {
namespace {

bool is_exact(const spec::Axis& axis) { return axis.policy.kind == spec::PolicyKind::exact; }

/// Machine code and the shape of its blocks hold for both: all that they may depend on agrees.
bool fixed_alike(const spec::Op& op, const Problem& a, const Problem& b) {
  if (a.selections != b.selections) return false;
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (is_exact(op.axes[i]) && a.axes[i] != b.axes[i]) return false;
  return true;
}

/// A workspace has the size that the bucket's upper edge asks for.
bool covers(const spec::Op& op, const Problem& bucket, const Problem& problem) {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (problem.axes[i] > bucket.axes[i]) return false;
  return true;
}

}  // namespace

CUdeviceptr OpState::make_workspace(const PlanState& plan, CUstream stream) {
  if (captures.captures(stream)) return 0;
  const cuda::Context::Scope scope(engine.context);
  const cuda::RelaxedCapture relaxed;
  return plan.workspaces->make(stream);
}

Origin OpState::launch_missed(const Problem& problem, const Arguments& arguments, CUstream stream) {
  if (!captures.captures(stream)) {
    const PlanState* plan = prepare(problem, stream);
    {
      const cuda::Context::Scope scope(engine.context);
      const cuda::RelaxedCapture relaxed;
      captures.make_workspaces(plan->of, stream);
    }
    return launch_plan(*plan, problem, arguments, stream);
  }
  if (engine.background) engine.background->want(*this, spec::bucket_of(op, problem), nullptr);
  return launch_stand_in(problem, arguments, stream, "no plan of its bucket is ready");
}

std::vector<const PlanState*> OpState::stand_ins(const Problem& problem, CUstream stream) {
  struct Near {
    const PlanState* plan;
    double distance;
  };
  std::vector<Near> near;
  const Problem bucket = spec::bucket_of(op, problem);
  const auto add = [&](const PlanState& plan) {
    const bool needs_none = plan.workspaces->bytes() == 0;
    if (needs_none || (covers(op, plan.answer.at, problem) && plan.workspaces->serves(stream)))
      near.push_back({&plan, tune::axis_distance(op, plan.bucket, bucket)});
  };
  plans.for_each([&](const BucketPlans& each) {
    if (!fixed_alike(op, each.resolution.bucket, bucket)) return;
    const PlanState& by_size = each.edge->at(problem);
    add(by_size);
    for (const PlanState* plan : each.made())
      if (plan != &by_size) add(*plan);
  });
  std::ranges::stable_sort(near, {},
                           [](const Near& each) { return std::pair(each.distance, is_stand_in(each.plan->origin)); });
  std::vector<const PlanState*> loaded;
  for (const Near& each : near) loaded.push_back(each.plan);
  return loaded;
}

Origin OpState::origin_of(const PlanState& stand_in, const Problem& problem) const noexcept {
  return stand_in.bucket == spec::bucket_of(op, problem) ? stand_in.origin : Origin::nearest;
}

Origin OpState::launch_stand_in(const Problem& problem, const Arguments& arguments, CUstream stream,
                                std::string_view missing) {
  require_tensors(problem, arguments);
  if (arguments.lengths_set != 0) check_lengths(arguments);
  captures.note_missed(spec::bucket_of(op, problem), stream);
  const bool allowed = engine.options.on_miss != MissPolicy::error;
  const auto loaded = allowed ? stand_ins(problem, stream) : std::vector<const PlanState*>();
  for (const PlanState* plan : loaded) {
    jit::CallFrame frame;
    if (!plan->executable.fill(frame, problem, arguments))
      throw Error(ErrorKind::bad_input, plan->executable.explain_frame(problem, arguments));
    // Looked at over all passes first: what one of them has put into the graph could not be taken back.
    if (plan->executable.admits(frame, arguments) != jit::Admission::admitted ||
        !plan->executable.fits(frame, arguments))
      continue;
    if (run(*plan, frame, arguments, stream) != Run::launched) continue;
    const Origin origin = origin_of(*plan, problem);
    count(*plan, problem, origin);
    return origin;
  }
  throw Error(
      ErrorKind::capture,
      fmt::format(
          "{} {} cannot be captured: {}, and {}; nothing is tuned, compiled, loaded or allocated on a capturing stream. Call Engine::prepare with this problem and stream before the capture",
          op.name, spec::to_string(op, problem), missing,
          allowed ? "nothing that is loaded can stand in" : "under MissPolicy::error nothing stands in"));
}

}  // namespace kiln::engine
