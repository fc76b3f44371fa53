#include "plan/refused_launch.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "cuda/stream_owner.hpp"
#include "kiln/error.hpp"
#include "plan/capture_launch.hpp"
#include "plan/hit_path.hpp"
#include "plan/owner.hpp"

namespace kiln::plan {
namespace {

/// Returns the slot's plan, making it if needed; null where it cannot be made, or not while the stream captures, or is
/// left to the background.
const PlanState* ready(OpState& op_state, PlanSlot& slot, BucketPlans& of, CUstream stream, PlanStore::Code code) {
  if (slot.settled.load(std::memory_order_acquire)) return slot.plan.get();
  if (!slot.retry.is_due(Retry::Clock::now()) || captures(op_state, stream)) return nullptr;
  return op_state.plans.make(slot, of, code, PlanStore::Try::if_due);
}

/// A launch waits for a compile where no plan serves it whose machine code is there.
constexpr std::array in_turn{PlanStore::Code::beside, PlanStore::Code::any};

std::string why_none_serves(const OpState& op_state, BucketPlans& of, const Problem& problem,
                            const Arguments& arguments) {
  std::string reasons;
  for (const PlanSlot* slot : of.slots_for(problem)) {
    const answer::Answer& answer = *slot->answer;
    std::string why = "it is not loaded";
    if (const PlanState* plan = slot->made()) {
      jit::CallFrame frame;
      static_cast<void>(plan->executable.fill(frame, problem, arguments));
      why = plan->executable.admits(frame, arguments) != jit::Admission::admitted
                ? plan->executable.explain(frame, arguments)
                : "it was refused when it was launched";
    } else if (auto broken = answer.why_not(op_state.site(), problem)) {
      why = std::move(*broken);
    }
    const bool is_default = answer.origin == Origin::default_;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ",
                           is_default ? "default of " + answer.implementation->name : answer.name(), why);
  }
  return reasons;
}

}  // namespace

void check_lengths(const OpState& op_state, const Arguments& arguments) {
  const manifest::Op& op = op_state.op;
  for (std::size_t i = 0; i < max_axes; ++i) {
    if ((arguments.lengths_set >> i & 1U) == 0) continue;
    if ((op_state.on_device >> i & 1U) == 0)
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

void require_tensors(const OpState& op_state, const Problem& problem, const Arguments& arguments) {
  const manifest::Op& op = op_state.op;
  const auto selected = manifest::frame_of(op_state.site(), problem);
  for (std::size_t i = 0; i < op.tensors.size(); ++i)
    if (arguments.tensors[i] == nullptr && !op.tensors[i].optional && manifest::Op::takes_part(op.tensors[i], selected))
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: tensor '{}' is missing (a null address); set it in the call's Arguments", op.name,
                              op.tensors[i].name));
}

const PlanState& plan_with_lengths(OpState& op_state, const PlanState& plan, const Call& call) {
  const auto& [problem, arguments, stream] = call;
  check_lengths(op_state, arguments);
  if (!plan.executable.is_library()) return plan;
  for (const PlanStore::Code code : in_turn)
    for (PlanSlot* slot : plan.of.slots_for(problem)) {
      if (slot->answer->implementation->is_library()) continue;
      if (const PlanState* const other = ready(op_state, *slot, plan.of, stream, code)) return *other;
    }
  return plan;  // the library refuses the launch
}

[[gnu::cold, gnu::noinline]] Origin launch_unmade(OpState& op_state, const PlanState& edge, const Call& call) {
  const auto& [problem, arguments, stream] = call;
  if (!edge.of.is_settled_for(problem) && captures(op_state, stream))
    return launch_in_capture(op_state, call, "the plan of its sizes is not loaded");
  const PlanState& by_size = op_state.plans.make_at(edge.of, problem);
  const PlanState& plan = arguments.lengths_set == 0 ? by_size : plan_with_lengths(op_state, by_size, call);
  const Attempt made = attempt(op_state, plan, problem, arguments, stream);
  return made.run == Run::launched ? made.origin : launch_next(op_state, plan, call);
}

Origin launch_next(OpState& op_state, const PlanState& refused, const Call& call) {
  const auto& [problem, arguments, stream] = call;
  require_tensors(op_state, problem, arguments);
  if (op_state.op.is_of_team()) require_team(op_state, problem);
  BucketPlans& of = refused.of;
  bool may_fall_back = false;  // the stream captures, and an answer is not ready
  std::vector<PlanSlot*> slots = of.slots_for(problem, &refused);
  for (const PlanStore::Code code : in_turn) {
    std::vector<PlanSlot*> not_ready;
    for (PlanSlot* slot : slots) {
      const answer::Answer& answer = *slot->answer;
      if (arguments.lengths_set != 0 && answer.implementation->is_library()) continue;
      const PlanState* const plan = ready(op_state, *slot, of, stream, code);
      if (plan == nullptr) {
        not_ready.push_back(slot);
        continue;
      }
      const Attempt made = attempt(op_state, *plan, problem, arguments, stream);
      if (made.run != Run::launched) continue;
      if (answer.origin == Origin::default_) op_state.owner.counters.count_constraint_fallback();
      return made.origin;
    }
    may_fall_back = !not_ready.empty() && captures(op_state, stream);
    slots = std::move(not_ready);
  }
  const std::string reasons = why_none_serves(op_state, of, problem, arguments);
  if (may_fall_back) return launch_in_capture(op_state, call, reasons);
  throw Error(ErrorKind::bad_input, fmt::format("{} {}: no implementation can serve this call: {}", op_state.op.name,
                                                manifest::display_text(op_state.op, problem), reasons));
}

std::optional<Origin> launch_loaded(OpState& op_state, const PlanState& first, const Call& call) {
  const auto& [problem, arguments, stream] = call;
  const bool is_capturing = captures(op_state, stream);
  const auto by = [&](const PlanState& plan) -> std::optional<Attempt> {
    if (!is_capturing && !op_state.owner.workspaces->serves(call.stream, plan.needs)) {
      cuda::require_own(op_state.owner.context, call.stream);  // no wait would help a stream that has ended
      return std::nullopt;
    }
    return attempt(op_state, plan, call.problem, call.arguments, call.stream);
  };
  if (arguments.lengths_set != 0) check_lengths(op_state, arguments);
  const bool takes_library = arguments.lengths_set == 0;
  if (takes_library || !first.executable.is_library()) {
    const auto made = by(first);
    if (!made) return std::nullopt;
    if (made->run == Run::launched) return made->origin;
  }
  require_tensors(op_state, problem, arguments);
  if (op_state.op.is_of_team()) require_team(op_state, problem);
  for (PlanSlot* slot : first.of.slots_for(problem, &first)) {
    if (!takes_library && slot->answer->implementation->is_library()) continue;
    if (!slot->settled.load(std::memory_order_acquire)) return std::nullopt;
    if (slot->plan == nullptr) continue;
    const auto made = by(*slot->plan);
    if (!made) return std::nullopt;
    if (made->run != Run::launched) continue;
    if (slot->answer->origin == Origin::default_) op_state.owner.counters.count_constraint_fallback();
    return made->origin;
  }
  return launch_next(op_state, first, call);  // throws, with the reasons
}

void refuse(const OpState& op_state, const PlanState& plan, CUresult result, CUstream stream) {
  const std::string what = fmt::format("launching {} {}{}{}: {}", op_state.op.name, plan.answer.implementation->name,
                                       plan.config.empty() ? "" : " ", plan.config, cuda::describe(result));
  switch (result) {
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      throw Error(
          ErrorKind::capture,
          what +
              "; the legacy default stream takes no work while a stream that is in order with it captures: launch on a stream made with CU_STREAM_NON_BLOCKING");
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
      throw Error(ErrorKind::capture, what + "; the capture takes no more work: end it and begin another");
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: {
      const cuda::Context::Guest guest(op_state.owner.context);
      if (const auto why = cuda::why_foreign(op_state.owner.context, stream))
        throw Error(ErrorKind::bad_input, what + "; " + *why);
      throw Error(
          ErrorKind::driver_failed,
          what +
              "; the stream is not at fault: the device was reset (cudaDeviceReset) since the plan was made, and the plan went with its context; make a new Engine");
    }
    default: break;
  }
  const ErrorKind kind = result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorKind::out_of_memory : ErrorKind::driver_failed;
  throw Error(kind, what);
}

}  // namespace kiln::plan
