// What a plan does not take, by its sizes, its addresses or a length in device memory: the bucket's next answers, in the resolver's order.
#include <fmt/format.h>

#include "engine/op_state.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {

void OpState::require_tensors(const Problem& problem, const Arguments& arguments) const {
  const auto selected = spec::make_frame(op, nullptr, problem, engine.context.info().facts);
  for (std::size_t i = 0; i < op.tensors.size(); ++i)
    if (arguments.tensors[i] == nullptr && !op.tensors[i].optional && spec::Op::takes_part(op.tensors[i], selected))
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: tensor '{}' is missing (a null address); set it in the call's Arguments", op.name,
                              op.tensors[i].name));
}

const PlanState* OpState::ready(PlanSlot& slot, BucketPlans& of, CUstream stream) {
  if (slot.settled.load(std::memory_order_acquire)) return slot.plan.get();
  if (!slot.retry.is_due(Retry::Clock::now()) || captures.captures(stream)) return nullptr;
  return plans.make(slot, of, PlanStore::Code::any, PlanStore::Try::if_due);
}

[[gnu::noinline]] const PlanState& OpState::plan_with_lengths(const PlanState& plan, const Problem& problem,
                                                              const Arguments& arguments, CUstream stream) {
  check_lengths(arguments);
  if (!plan.executable.is_library()) return plan;
  const auto answers = plan.of.answers();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].implementation->is_library() || !answers[i].region.contains(op, problem)) continue;
    if (const PlanState* const other = ready(plan.of.slot(i), plan.of, stream)) return *other;
  }
  return plan;  // which refuses
}

std::string OpState::why_none_serves(BucketPlans& of, const Problem& problem, const Arguments& arguments) const {
  std::string reasons;
  for (const PlanSlot* slot : of.slots_for(op, problem)) {
    const Answer& answer = *slot->answer;
    std::string why = "it is not loaded";
    if (const PlanState* plan = slot->made()) {
      jit::CallFrame frame;
      static_cast<void>(plan->executable.fill(frame, problem, arguments));
      why = plan->executable.admits(frame, arguments) != jit::Admission::admitted
                ? plan->executable.explain(frame, arguments)
                : "it was refused when it was launched";
    } else if (auto broken = why_not(op, answer, problem, engine.context.info().facts)) {
      why = std::move(*broken);
    }
    const bool is_default = answer.origin == Origin::default_;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ",
                           is_default ? "default of " + answer.implementation->name : name_of(answer), why);
  }
  return reasons;
}

/// What refuses is asked again, in words, only where nothing serves.
[[gnu::noinline]] Origin OpState::launch_next(const PlanState& refused, const Problem& problem,
                                              const Arguments& arguments, CUstream stream) {
  require_tensors(problem, arguments);
  BucketPlans& of = refused.of;
  bool may_stand_in = false;  // on a capturing stream, where an answer is not ready
  for (PlanSlot* slot : of.slots_for(op, problem, &refused)) {
    const Answer& answer = *slot->answer;
    if (arguments.lengths_set != 0 && answer.implementation->is_library()) continue;
    const PlanState* const plan = ready(*slot, of, stream);
    if (plan == nullptr) {
      may_stand_in = may_stand_in || captures.captures(stream);
      continue;
    }
    const Attempt made = attempt(*plan, problem, arguments, stream);
    if (made.run == Run::no_workspace) may_stand_in = true;
    if (made.run != Run::launched) continue;
    if (answer.origin == Origin::default_) engine.counters.count_constraint_fallback();
    return made.origin;
  }
  const std::string reasons = why_none_serves(of, problem, arguments);
  if (may_stand_in) return launch_stand_in(problem, arguments, stream, reasons);
  throw Error(ErrorKind::bad_input, fmt::format("{} {}: no implementation can serve this call: {}", op.name,
                                                spec::to_string(op, problem), reasons));
}

}  // namespace kiln::engine
