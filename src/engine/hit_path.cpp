// Problem -> bucket -> hot table -> plan -> launch. No lock, no allocation, no string, no file, no clock on a hot bucket.
#include <fmt/format.h>

#include "engine/op_state.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {
namespace {

constexpr std::string_view no_workspace = "its plan has no workspace for this stream";

/// A launch is counted on its way to the driver, when what counting touches is fetched beside all else; after it, these lines would be
/// waited for alone. One that is not made is taken back.
struct Counted {
  /// `own`: whether no other thread has this one's number.
  Counted(State& of, const PlanState& launched, unsigned thread, bool own)
      : engine(of),
        plan(launched),
        origin(plan.count_as()),
        before(own ? engine.counters.count_own(origin, thread) : engine.counters.count(origin)) {}
  ~Counted() {
    if (!made) [[unlikely]]
      take_back(engine.counters, plan, origin);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  [[gnu::cold, gnu::noinline]] static void take_back(Counters& counters, const PlanState& plan,
                                                     Origin origin) noexcept {
    counters.take_back(origin);
    plan.take_back(origin);
  }

  State& engine;
  const PlanState& plan;
  const Origin origin;
  const std::int64_t before;  // launches of this origin in this thread's shard
  bool made = false;
};

[[noreturn, gnu::cold, gnu::noinline]] void refuse_frame(const PlanState& plan, const Problem& problem,
                                                         const Arguments& arguments) {
  throw Error(ErrorKind::bad_input, plan.executable.explain_frame(problem, arguments));
}

[[noreturn, gnu::cold, gnu::noinline]] void refuse_problem(const spec::Op& op, const Problem& problem,
                                                           const Problem& bucket) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: the problem {} is not of this plan's bucket, {}", op.name,
                                                spec::to_string(op, problem), spec::to_string(op, bucket)));
}

}  // namespace

OpState::OpState(State& engine_state, const spec::Op& described)
    : engine(engine_state),
      op(described),
      bucketing(described),
      plans(engine_state, described, bucketing.form()),
      captures(engine_state.context, described.name) {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (op.axes[i].on_device) on_device_ |= 1U << i;
}

std::size_t OpState::index() const noexcept { return static_cast<std::size_t>(&op - engine.ops.read_so_far().data()); }

[[gnu::noinline]] void OpState::check_lengths(const Arguments& arguments) const {
  for (std::size_t i = 0; i < max_axes; ++i) {
    if ((arguments.lengths_set >> i & 1U) == 0) continue;
    if ((on_device_ >> i & 1U) == 0)
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: {} may not have its length on the device; its op.toml does not declare on_device",
                              op.name, i < op.axes.size() ? "axis '" + op.axes[i].name + "'" : "an axis it has not"));
    const auto address = reinterpret_cast<std::uintptr_t>(arguments.lengths[i]);
    if (address != 0 && address % alignof(std::int32_t) == 0) continue;
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: the length of axis '{}' on the device is {:#x}, expected the address of an int32; "
                            "Arguments::reset takes it back",
                            op.name, op.axes[i].name, address));
  }
}

/// One launch in Histogram::stride comes here.
[[gnu::noinline]] void OpState::sample(const PlanState& plan, const Problem& problem) noexcept {
  if (is_stand_in(plan.origin)) plan.samples.fetch_add(1, std::memory_order_relaxed);
  if (!engine.histogram) return;
  engine.histogram->histogram.add(static_cast<std::uint32_t>(index()), problem);
}

void OpState::count(const PlanState& plan, const Problem& problem, Origin origin) noexcept {
  if (Histogram::is_sample(engine.counters.count(origin))) [[unlikely]]
    sample(plan, problem);
}

Origin OpState::launch(const Problem& problem, const Arguments& arguments, CUstream stream) {
  spec::BucketWords bucket;
  if (!bucketing.find(problem, bucket)) [[unlikely]]
    spec::check_problem(op, problem);  // throws, saying what is wrong
  const PlanState* plan = plans.hot.find(bucket);
  if (plan == nullptr) [[unlikely]]
    return launch_missed(problem, arguments, stream);
  return launch_plan(*plan, problem, arguments, stream);
}

/// Flat, so that what a hit executes lies in one piece and in order: it is read from caches further away, since the driver was in the nearest
/// ones after the launch before.
[[gnu::hot, gnu::flatten]] Origin OpState::launch_plan(const PlanState& edge, const Problem& problem,
                                                       const Arguments& arguments, CUstream stream) {
  const PlanState* by_size = &edge.at(problem);
  if (arguments.lengths_set != 0) [[unlikely]]
    by_size = &plan_with_lengths(*by_size, problem, arguments, stream);
  const PlanState& plan = *by_size;
  const unsigned thread = jit::thread_number();
  if (jit::KeptCall* const kept = plan.executable.kept_call(thread)) [[likely]]
    return launch_in(kept->frame, kept, thread, plan, problem, arguments, stream);
  return launch_in_scratch(plan, problem, arguments, stream);
}

/// For a thread that keeps no calls. Apart, so that the frame takes no room among what other launches touch.
[[gnu::cold, gnu::noinline]] Origin OpState::launch_in_scratch(const PlanState& plan, const Problem& problem,
                                                               const Arguments& arguments, CUstream stream) {
  jit::CallFrame frame;
  return launch_in(frame, nullptr, jit::shared_thread_number, plan, problem, arguments, stream);
}

[[gnu::always_inline]] inline OpState::Attempt OpState::attempt(jit::CallFrame& frame, jit::KeptCall* kept,
                                                                unsigned thread, const PlanState& plan,
                                                                const Problem& problem, const Arguments& arguments,
                                                                CUstream stream) {
  if (!plan.executable.fill(frame, problem, arguments)) [[unlikely]]
    refuse_frame(plan, problem, arguments);
  if (plan.executable.admits(frame, arguments) != jit::Admission::admitted) [[unlikely]]
    return {Run::refused, plan.origin};
  Counted counted(engine, plan, thread, kept != nullptr);
  if (const Run ran = run(plan, frame, arguments, stream, kept); ran != Run::launched) [[unlikely]]
    return {ran, plan.origin};
  counted.made = true;
  if (Histogram::is_sample(counted.before)) [[unlikely]]
    sample(plan, problem);
  return {Run::launched, counted.origin};
}

[[gnu::always_inline]] inline Origin OpState::launch_in(jit::CallFrame& frame, jit::KeptCall* kept, unsigned thread,
                                                        const PlanState& plan, const Problem& problem,
                                                        const Arguments& arguments, CUstream stream) {
  const Attempt made = attempt(frame, kept, thread, plan, problem, arguments, stream);
  if (made.run == Run::launched) [[likely]]
    return made.origin;
  if (made.run == Run::refused) return launch_next(plan, problem, arguments, stream);
  return launch_stand_in(problem, arguments, stream, no_workspace);
}

/// Apart from a hit, which is flat.
[[gnu::noinline]] OpState::Attempt OpState::attempt(const PlanState& plan, const Problem& problem,
                                                    const Arguments& arguments, CUstream stream) {
  const unsigned thread = jit::thread_number();
  if (jit::KeptCall* const kept = plan.executable.kept_call(thread))
    return attempt(kept->frame, kept, thread, plan, problem, arguments, stream);
  jit::CallFrame frame;
  return attempt(frame, nullptr, jit::shared_thread_number, plan, problem, arguments, stream);
}

OpState::Run OpState::run(const PlanState& plan, jit::CallFrame& frame, const Arguments& arguments, CUstream stream,
                          jit::KeptCall* kept) {
  CUdeviceptr workspace = 0;
  if (plan.executable.workspace_bytes() > 0) [[unlikely]] {
    workspace = plan.workspaces->find(stream);
    if (workspace == 0) workspace = make_workspace(plan, stream);
    if (workspace == 0) return Run::no_workspace;
  }
  const CUdeviceptr reports = arguments.lengths_set != 0 ? engine.length_reports.of(index()) : 0;
  CUresult result = kept != nullptr ? plan.executable.launch(*kept, arguments, stream, workspace, reports)
                                    : plan.executable.launch(frame, arguments, stream, workspace, reports);
  if (result == CUDA_ERROR_INVALID_CONTEXT) [[unlikely]]
    result = run_in_context(plan, frame, arguments, stream, workspace, reports);
  if (result != CUDA_SUCCESS) [[unlikely]] {
    if (result == CUDA_ERROR_NOT_SUPPORTED && plan.executable.is_library()) return Run::refused;
    refuse(plan, result, stream);
  }
  return Run::launched;
}

/// For a thread that has no current context, or another device's.
[[gnu::cold, gnu::noinline]] CUresult OpState::run_in_context(const PlanState& plan, jit::CallFrame& frame,
                                                              const Arguments& arguments, CUstream stream,
                                                              CUdeviceptr workspace, CUdeviceptr reports) {
  const cuda::Context::Scope scope(engine.context);
  return plan.executable.launch(frame, arguments, stream, workspace, reports);
}

}  // namespace kiln::engine

namespace kiln {

[[gnu::hot, gnu::flatten]] Origin Op::launch(const Problem& problem, const Arguments& arguments, Stream stream) const {
  return state_->launch(problem, arguments, stream);
}

[[gnu::hot, gnu::flatten]] Origin Plan::launch(const Problem& problem, const Arguments& arguments,
                                               Stream stream) const {
  spec::BucketWords bucket;
  if (!op_->bucketing.find(problem, bucket)) [[unlikely]]
    spec::check_problem(op_->op, problem);
  if (!op_->bucketing.form().is(bucket, state_->bucket)) [[unlikely]]
    engine::refuse_problem(op_->op, problem, state_->bucket);
  return op_->launch_plan(*state_, problem, arguments, stream);
}

}  // namespace kiln
