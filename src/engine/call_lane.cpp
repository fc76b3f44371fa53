// Problem -> bucket -> hot table -> plan -> launch. No lock, no allocation, no string, no file, no clock on a hot bucket.
#include <fmt/format.h>

#include "engine/state.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {
namespace {

constexpr std::string_view no_workspace = "its plan has no workspace for this stream";

}  // namespace

OpState::OpState(State& engine_state, const spec::Op& described)
    : engine(engine_state), op(described), bucketing(described), hot(bucketing.form()) {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (op.axes[i].on_device) on_device_ |= 1U << i;
  for (std::size_t i = 0; i < op.implementations.size(); ++i) fallbacks_.emplace_back(bucketing.form());
}

std::size_t OpState::index() const noexcept { return static_cast<std::size_t>(&op - engine.ops.read_so_far().data()); }

void OpState::check_lengths(const Arguments& arguments) const {
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
void OpState::sample(const PlanState& plan, const Problem& problem) noexcept {
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
  const PlanState* plan = hot.find(bucket);
  if (plan == nullptr) [[unlikely]]
    return launch_missed(problem, arguments, stream);
  return launch_plan(*plan, problem, arguments, stream);
}

Origin OpState::launch_plan(const PlanState& whole, const Problem& problem, const Arguments& arguments,
                            CUstream stream) {
  if (arguments.lengths_set != 0) check_lengths(arguments);
  const PlanState& plan = whole.at(problem);
  jit::CallFrame frame;
  if (!plan.executable.fill(frame, problem, arguments))
    throw Error(ErrorKind::bad_input, plan.executable.explain_frame(problem, arguments));
  if (plan.executable.admits(frame, arguments) != jit::Admission::admitted)
    return launch_fallback(plan, frame, problem, arguments, stream);
  if (!run(plan, frame, arguments, stream)) return launch_stand_in(problem, arguments, stream, no_workspace);
  const bool hit = plan.origin == Origin::overlay || plan.origin == Origin::base;
  const bool again = plan.launched.load(std::memory_order_relaxed);
  if (!again) plan.launched.store(true, std::memory_order_relaxed);
  const Origin origin = hit && again ? Origin::hot : plan.origin;
  count(plan, problem, origin);
  return origin;
}

bool OpState::run(const PlanState& plan, const jit::CallFrame& frame, const Arguments& arguments, CUstream stream) {
  CUdeviceptr workspace = 0;
  if (plan.workspaces->bytes() > 0) {
    workspace = plan.workspaces->find(stream);
    if (workspace == 0) workspace = make_workspace(plan, stream);
    if (workspace == 0) return false;
  }
  const CUdeviceptr reports = arguments.lengths_set != 0 ? engine.length_reports.of(index()) : 0;
  CUresult result = plan.executable.launch(frame, arguments, stream, workspace, reports);
  if (result == CUDA_ERROR_INVALID_CONTEXT) {  // this thread has no current context, or another device's
    const cuda::Context::Scope scope(engine.context);
    result = plan.executable.launch(frame, arguments, stream, workspace, reports);
  }
  if (result != CUDA_SUCCESS) refuse(plan, result, stream);
  return true;
}

}  // namespace kiln::engine
