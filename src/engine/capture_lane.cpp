// A stream that captures a graph, and something is not ready: nothing is tuned, compiled, loaded, allocated or waited for. What is loaded
// stands in, or the call is refused; either way the capture goes on.
#include <fmt/format.h>

#include <algorithm>

#include "cuda/stream_owner.hpp"
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

bool OpState::captures(CUstream stream) const {
  const cuda::Context::Scope scope(engine.context);
  cuda::require_own(engine.context, stream);
  const cuda::CaptureState state = cuda::capture_state(stream);
  if (state == cuda::CaptureState::excluded)
    throw Error(
        ErrorKind::capture,
        op.name +
            ": a launch on the legacy default stream would end the capture of a stream that is in order with it; launch on a stream made with CU_STREAM_NON_BLOCKING, or after the capture");
  return state == cuda::CaptureState::capturing;
}

CUdeviceptr OpState::make_workspace(const PlanState& plan, CUstream stream) {
  if (captures(stream)) return 0;
  const cuda::Context::Scope scope(engine.context);
  const cuda::RelaxedCapture relaxed;
  return plan.workspaces->make(stream);
}

Origin OpState::launch_missed(const Problem& problem, const Arguments& arguments, CUstream stream) {
  if (!captures(stream)) {
    const PlanState* plan = prepare(problem, stream);
    {
      const cuda::Context::Scope scope(engine.context);
      const cuda::RelaxedCapture relaxed;
      make_workspaces(*plan, stream);
    }
    return launch_plan(*plan, problem, arguments, stream);
  }
  if (engine.background) engine.background->want(*this, spec::bucket_of(op, problem), nullptr);
  return launch_stand_in(problem, arguments, stream, "no plan of its bucket is ready");
}

void OpState::make_workspaces(const PlanState& plan, CUstream stream) {
  plan.make_workspaces(stream);  // notes the stream too, for a plan that may take this one's place
  make_missed_workspaces(plan);
}

void OpState::note_missed(const Problem& bucket, CUstream stream) {
  const cuda::Context::Scope scope(engine.context);
  const std::lock_guard lock(mutex_);  // held by nobody for longer than this
  auto missed = std::ranges::find(missed_, bucket, &Missed::bucket);
  if (missed == missed_.end()) missed = missed_.insert(missed_.end(), {bucket, std::make_unique<Workspaces>(0, false)});
  missed->streams->make(stream);
}

void OpState::make_missed_workspaces(const PlanState& plan) {
  const Workspaces* streams = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto missed = std::ranges::find(missed_, plan.bucket, &Missed::bucket);
    if (missed != missed_.end()) streams = missed->streams.get();
  }
  if (streams == nullptr) return;
  try {
    plan.make_workspaces_as(*streams);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory)
      throw;  // the caller lacks nothing; captures on those streams will be told
  }
}

std::vector<const PlanState*> OpState::stand_ins(const Problem& problem, CUstream stream) {
  struct Near {
    const PlanState* plan;
    double distance;
  };
  std::vector<Near> near;
  const Problem bucket = spec::bucket_of(op, problem);
  {
    const std::lock_guard lock(mutex_);  // held by nobody for longer than this
    for (const auto& each : plans_) {
      if (!fixed_alike(op, each->bucket, bucket)) continue;
      const PlanState& part = each->at(problem);
      for (const PlanState* plan : {&part, part.made_runner_up()}) {
        if (plan == nullptr) continue;
        const bool needs_none = plan->workspaces->bytes() == 0;
        if (needs_none || (covers(op, plan->bucket, problem) && plan->workspaces->serves(stream)))
          near.push_back({plan, tune::axis_distance(op, plan->bucket, bucket)});
      }
    }
  }
  std::ranges::stable_sort(near, {},
                           [](const Near& each) { return std::pair(each.distance, is_stand_in(each.plan->origin)); });
  std::vector<const PlanState*> plans;
  for (const Near& each : near) plans.push_back(each.plan);
  return plans;
}

Origin OpState::origin_of(const PlanState& stand_in, const Problem& problem) const noexcept {
  const bool own = spec::bucket_of(op, stand_in.bucket) == spec::bucket_of(op, problem);
  return own ? stand_in.origin : Origin::nearest;
}

Origin OpState::launch_stand_in(const Problem& problem, const Arguments& arguments, CUstream stream,
                                std::string_view missing) {
  require_tensors(problem, arguments);
  if (arguments.lengths_set != 0) check_lengths(arguments);
  note_missed(spec::bucket_of(op, problem), stream);
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
