#include "plan/hit_path.hpp"

#include <fmt/format.h>

#include <atomic>
#include <optional>
#include <thread>

#include "cuda/stream_owner.hpp"
#include "kiln/error.hpp"
#include "plan/capture_launch.hpp"
#include "plan/owner.hpp"
#include "plan/refused_launch.hpp"

namespace kiln::plan {
namespace {

/// Counts a launch before it goes to the driver, so that the counters' cache lines are fetched beside everything else.
/// Takes the count back if the launch is not made.
struct Counted {
  /// `own`: whether this thread alone has its number.
  Counted(Owner& of, const PlanState& launched, unsigned thread, bool own)
      : owner(of),
        plan(launched),
        origin(plan.count_as()),
        before(own ? owner.counters.count_own(origin, thread) : owner.counters.count(origin)) {}
  ~Counted() {
    if (!made) [[unlikely]]
      take_back(owner.counters, plan, origin);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  [[gnu::cold, gnu::noinline]] static void take_back(Counters& counters, const PlanState& plan,
                                                     Origin origin) noexcept {
    counters.take_back(origin);
    plan.take_back(origin);
  }

  Owner& owner;
  const PlanState& plan;
  const Origin origin;
  const std::int64_t before;  // launches of this origin in this thread's shard
  bool made = false;
};

[[noreturn, gnu::cold, gnu::noinline]] void refuse_frame(const PlanState& plan, const Problem& problem,
                                                         const Arguments& arguments) {
  throw Error(ErrorKind::bad_input, plan.executable.explain_frame(problem, arguments));
}

/// For a problem that is not of the plan's bucket. `plan` is null where the plan's own problem has a size of 0.
[[gnu::cold, gnu::noinline]] Origin launch_other(const OpState& op_state, const PlanState* plan,
                                                 const Problem& problem) {
  if (manifest::is_empty(op_state.op, problem)) return launch_nothing(op_state, problem);
  manifest::check_problem(op_state.op, problem);  // throws, where the op has no such problem
  throw Error(ErrorKind::bad_input, fmt::format("{}: the problem {} is not of this plan's bucket, {}", op_state.op.name,
                                                manifest::display_text(op_state.op, problem),
                                                plan == nullptr ? "which has a size of 0"
                                                                : manifest::display_text(op_state.op, plan->bucket)));
}

/// Called for one launch in Histogram::stride.
[[gnu::noinline]] void sample(OpState& op_state, const PlanState& plan, const Problem& problem) noexcept {
  if (is_fallback(plan.origin)) plan.samples.fetch_add(1, std::memory_order_relaxed);
  if (op_state.owner.histogram) op_state.owner.histogram->histogram.add(op_state.index, problem);
}

/// The words for an op whose kernels report. Throws as require_sound_team() does.
CUdeviceptr reports_of(const OpState& op_state) {
  if (op_state.op.is_of_team()) require_sound_team(op_state.owner);
  return op_state.owner.length_reports.of(op_state.index);
}

/// The driver gives the first for a thread without a current context. With another device's current, it calls the
/// kernel or its default stream an invalid handle.
bool may_lack_context(CUresult result) noexcept {
  return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_HANDLE;
}

/// For a launch that was refused with `result`. Launches again if another context or none was current.
[[gnu::cold, gnu::noinline]] CUresult run_in_context(CUresult result, const Owner& owner, const PlanState& plan,
                                                     jit::CallFrame& frame, const Arguments& arguments, CUstream stream,
                                                     const jit::WorkspaceBlocks& workspace, CUdeviceptr reports) {
  CUcontext current = nullptr;
  if (cuda::Driver::get().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == owner.context.handle()) return result;
  const cuda::Context::Scope scope(owner.context);
  return plan.executable.launch(frame, arguments, stream, workspace, reports);
}

[[gnu::always_inline]] inline Attempt attempt(OpState& op_state, jit::CallFrame& frame, jit::ThreadCall* kept,
                                              unsigned thread, const PlanState& plan, const Problem& problem,
                                              const Arguments& arguments, CUstream stream) {
  if (!plan.executable.fill(frame, problem, arguments)) [[unlikely]]
    refuse_frame(plan, problem, arguments);
  if (plan.executable.admits(frame, arguments) != jit::Admission::admitted) [[unlikely]]
    return {Run::refused, plan.origin};
  Counted counted(op_state.owner, plan, thread, kept != nullptr);
  if (const Run ran = run(op_state, plan, frame, arguments, stream, kept); ran != Run::launched) [[unlikely]]
    return {ran, plan.origin};
  counted.made = true;
  if (Histogram::is_sample(counted.before)) [[unlikely]]
    sample(op_state, plan, problem);
  return {Run::launched, counted.origin};
}

[[gnu::always_inline]] inline Origin launch_in(OpState& op_state, jit::CallFrame& frame, jit::ThreadCall* kept,
                                               unsigned thread, const PlanState& plan, const Problem& problem,
                                               const Arguments& arguments, CUstream stream) {
  const Attempt made = attempt(op_state, frame, kept, thread, plan, problem, arguments, stream);
  if (made.run == Run::launched) [[likely]]
    return made.origin;
  return launch_next(op_state, plan, {problem, arguments, stream});
}

/// For a thread that keeps no call, such as any in a forked child. A function of its own keeps the frame off other
/// launches' stack.
[[gnu::cold, gnu::noinline]] Origin launch_in_scratch(OpState& op_state, const PlanState& plan, const Problem& problem,
                                                      const Arguments& arguments, CUstream stream) {
  cuda::require_not_forked();
  jit::CallFrame frame;
  return launch_in(op_state, frame, nullptr, jit::shared_thread_number, plan, problem, arguments, stream);
}

[[gnu::always_inline]] inline Run submit(OpState& op_state, const PlanState& plan, jit::CallFrame& frame,
                                         const Arguments& arguments, CUstream stream, jit::ThreadCall* kept,
                                         const jit::WorkspaceBlocks& workspace) {
  const CUdeviceptr reports = op_state.reports ? reports_of(op_state) : 0;
  CUresult result = kept != nullptr ? plan.executable.launch(*kept, arguments, stream, workspace, reports)
                                    : plan.executable.launch(frame, arguments, stream, workspace, reports);
  if (result == CUDA_SUCCESS) [[likely]]
    return Run::launched;
  if (may_lack_context(result))
    result = run_in_context(result, op_state.owner, plan, frame, arguments, stream, workspace, reports);
  if (result != CUDA_SUCCESS) {
    if (result == CUDA_ERROR_NOT_SUPPORTED && plan.executable.is_library()) return Run::refused;
    refuse(op_state, plan, result, stream);
  }
  return Run::launched;
}

/// Keeps the passes of a launch together on its stream, where other threads launch plans that use the same workspace.
class OneLaunch {
 public:
  explicit OneLaunch(std::atomic<bool>& launching) noexcept : launching_(launching) {
    for (int tries = 0; launching_.exchange(true, std::memory_order_acquire); ++tries)
      if (tries > 100) std::this_thread::yield();
  }
  ~OneLaunch() { launching_.store(false, std::memory_order_release); }
  OneLaunch(const OneLaunch&) = delete;
  OneLaunch& operator=(const OneLaunch&) = delete;

 private:
  std::atomic<bool>& launching_;
};

/// Launches if the stream has its workspace, which is not freed before the driver has the launch. Returns nothing where
/// it has none.
[[gnu::always_inline]] inline std::optional<Run> run_if_found(OpState& op_state, const PlanState& plan,
                                                              jit::CallFrame& frame, const Arguments& arguments,
                                                              CUstream stream, jit::ThreadCall* kept,
                                                              const cuda::StreamIdentity& identity) {
  const Workspaces& workspaces = *op_state.owner.workspaces;
  const LaunchesInFlight::Entered entered(workspaces.launches(), jit::thread_number());
  const Workspaces::Found found = workspaces.find(identity, plan.needs);
  if (found.launching == nullptr) [[unlikely]]
    return std::nullopt;
  const OneLaunch alone(*found.launching);
  return submit(op_state, plan, frame, arguments, stream, kept, found.blocks);
}

/// For a stream without its workspace, and a thread whose current context is none or another: the driver tells streams
/// apart in a context.
[[gnu::cold, gnu::noinline]] Run run_in_scope(OpState& op_state, const PlanState& plan, jit::CallFrame& frame,
                                              const Arguments& arguments, CUstream stream, jit::ThreadCall* kept) {
  const cuda::Context::Scope scope(op_state.owner.context);
  for (;;) {
    cuda::StreamIdentity identity;
    if (const CUresult known = cuda::identify(stream, identity); known != CUDA_SUCCESS)
      refuse(op_state, plan, known, stream);
    if (const auto ran = run_if_found(op_state, plan, frame, arguments, stream, kept, identity)) return *ran;
    const cuda::RelaxedCapture relaxed;
    cuda::require_own(op_state.owner.context, stream);
    op_state.owner.workspaces->make(stream, plan.needs);
  }
}

[[gnu::noinline]] Run run_with_workspace(OpState& op_state, const PlanState& plan, jit::CallFrame& frame,
                                         const Arguments& arguments, CUstream stream, jit::ThreadCall* kept) {
  cuda::StreamIdentity identity;
  if (cuda::identify(stream, identity) == CUDA_SUCCESS) [[likely]]
    if (const auto ran = run_if_found(op_state, plan, frame, arguments, stream, kept, identity)) [[likely]]
      return *ran;
  return run_in_scope(op_state, plan, frame, arguments, stream, kept);
}

/// Whether a launch needs neither a workspace, nor a context that has to be made current.
bool needs_nothing_made(const OpState& op_state, const PlanState& plan) {
  cuda::require_not_forked();
  CUcontext current = nullptr;
  return plan.needs.none() && cuda::Driver::get().cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
         current == op_state.owner.context.handle();
}

}  // namespace

[[gnu::cold, gnu::noinline]] Origin launch_nothing(const OpState& op_state, const Problem& problem) {
  manifest::check_problem(op_state.op, problem, manifest::Zeros::taken);
  if (op_state.op.is_of_team()) {
    require_team(op_state, problem);
    require_sound_team(op_state.owner);
  }
  return Origin::hot;
}

void count(OpState& op_state, const PlanState& plan, const Problem& problem, Origin origin) noexcept {
  if (Histogram::is_sample(op_state.owner.counters.count(origin))) [[unlikely]]
    sample(op_state, plan, problem);
}

Origin launch(OpState& op_state, const Problem& problem, const Arguments& arguments, CUstream stream) {
  manifest::BucketWords bucket;
  if (!op_state.bucketing.find(problem, bucket)) [[unlikely]]
    return launch_nothing(op_state, problem);  // throws for any other reason, saying what is wrong
  const PlanState* plan = op_state.plans.hot.find(bucket);
  if (plan == nullptr) [[unlikely]]
    return op_state.owner.launch_cold(op_state, {problem, arguments, stream});
  return launch_plan(op_state, *plan, problem, arguments, stream);
}

std::optional<Origin> try_launch(OpState& op_state, const Problem& problem, const Arguments& arguments,
                                 CUstream stream) {
  manifest::BucketWords bucket;
  if (!op_state.bucketing.find(problem, bucket)) return launch_nothing(op_state, problem);
  const Call call{problem, arguments, stream};
  const PlanState* const edge = op_state.plans.hot.find(bucket);
  const PlanState* const plan = edge == nullptr ? nullptr : edge->at(problem);
  if (plan != nullptr && arguments.lengths_set == 0 && needs_nothing_made(op_state, *plan)) [[likely]] {
    const Attempt made = attempt(op_state, *plan, problem, arguments, stream);
    if (made.run == Run::launched) [[likely]]
      return made.origin;
  }
  const cuda::Context::Scope scope(op_state.owner.context);  // by which streams are told apart
  if (plan != nullptr) return launch_loaded(op_state, *plan, call);
  if (edge != nullptr && !captures(op_state, stream)) return std::nullopt;
  if (edge != nullptr) return launch_unmade(op_state, *edge, call);
  manifest::check_own(op_state.op, problem);
  manifest::check_own(op_state.op, arguments);
  manifest::check_allowed(op_state.op, problem);
  if (op_state.op.is_of_team() || !captures(op_state, stream)) return std::nullopt;
  return op_state.owner.launch_cold(op_state, call);  // nothing waits in a capture
}

/// Flattened, so that a hit's code is contiguous: the driver evicts it from the nearest caches at each launch.
[[gnu::hot, gnu::flatten]] Origin launch_plan(OpState& op_state, const PlanState& edge, const Problem& problem,
                                              const Arguments& arguments, CUstream stream) {
  const PlanState* by_size = edge.at(problem);
  if (by_size == nullptr) [[unlikely]]
    return launch_unmade(op_state, edge, {problem, arguments, stream});
  if (arguments.lengths_set != 0) [[unlikely]]
    by_size = &plan_with_lengths(op_state, *by_size, {problem, arguments, stream});
  const PlanState& plan = *by_size;
  const unsigned thread = jit::thread_number();
  if (jit::ThreadCall* const kept = plan.executable.thread_call(thread)) [[likely]]
    return launch_in(op_state, kept->frame, kept, thread, plan, problem, arguments, stream);
  return launch_in_scratch(op_state, plan, problem, arguments, stream);
}

/// Not inlined into launch_plan.
[[gnu::noinline]] Attempt attempt(OpState& op_state, const PlanState& plan, const Problem& problem,
                                  const Arguments& arguments, CUstream stream) {
  const unsigned thread = jit::thread_number();
  if (jit::ThreadCall* const kept = plan.executable.thread_call(thread))
    return attempt(op_state, kept->frame, kept, thread, plan, problem, arguments, stream);
  jit::CallFrame frame;
  return attempt(op_state, frame, nullptr, jit::shared_thread_number, plan, problem, arguments, stream);
}

Run run(OpState& op_state, const PlanState& plan, jit::CallFrame& frame, const Arguments& arguments, CUstream stream,
        jit::ThreadCall* kept) {
  if (plan.executable.needs_workspace()) [[unlikely]]
    return run_with_workspace(op_state, plan, frame, arguments, stream, kept);
  return submit(op_state, plan, frame, arguments, stream, kept, {});
}

}  // namespace kiln::plan

namespace kiln {

[[gnu::hot, gnu::flatten]] Origin Op::launch(const Problem& problem, const Arguments& arguments, Stream stream) const {
#ifndef NDEBUG
  manifest::check_own(state_->op, problem);
  manifest::check_own(state_->op, arguments);
#endif
  return plan::launch(*state_, problem, arguments, stream);
}

[[gnu::hot, gnu::flatten]] Origin Plan::launch(const Problem& problem, const Arguments& arguments,
                                               Stream stream) const {
  if (!op_->bucketing.is_in(problem, bucket_)) [[unlikely]]
    return plan::launch_other(*op_, state_, problem);
  return plan::launch_plan(*op_, *state_, problem, arguments, stream);
}

std::optional<Origin> Op::try_launch(const Problem& problem, const Arguments& arguments, Stream stream) const {
  return plan::try_launch(*state_, problem, arguments, stream);
}

}  // namespace kiln
