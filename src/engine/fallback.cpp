// What a plan does not take, by its sizes, addresses or lengths on the device: the runner-up of a library serves it, else a default.
#include <fmt/format.h>

#include <new>
#include <system_error>

#include "engine/state.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {
namespace {

/// Whether the same may succeed later: for want of memory, of a thread, a process or a file, or because somebody stopped a compile.
bool may_pass(const std::exception& failure) {
  if (const auto* error = dynamic_cast<const Error*>(&failure))
    return error->kind() == ErrorKind::out_of_memory || error->kind() == ErrorKind::io ||
           error->kind() == ErrorKind::interrupted;
  return dynamic_cast<const std::bad_alloc*>(&failure) != nullptr ||
         dynamic_cast<const std::system_error*>(&failure) != nullptr;
}

bool is_interrupt(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr && error->kind() == ErrorKind::interrupted;
}

}  // namespace

/// What no size inside the bucket can mend.
std::optional<std::string> OpState::why_default_cannot_serve(const spec::Implementation& implementation,
                                                             const Problem& bucket) const {
  const spec::DeviceFacts& facts = engine.context.info().facts;
  if (implementation.is_library()) return "a library has none";
  if (auto why = spec::why_not_eligible(op, implementation, bucket, facts)) return why;
  const auto frame = spec::make_frame(op, &implementation, bucket, facts, implementation.default_config);
  if (auto broken = jit::broken_fixed_constraint(op, implementation, frame))
    return fmt::format("the constraint '{}' does not hold", *broken);
  return std::nullopt;
}

const spec::Implementation* OpState::default_at(const Problem& problem) const {
  const Problem bucket = spec::bucket_of(op, problem);
  for (const spec::Implementation& each : op.implementations)
    if (!why_default_cannot_serve(each, bucket) &&
        !spec::broken_constraint(op, each, problem, engine.context.info().facts, each.default_config))
      return &each;
  return nullptr;
}

const PlanState* OpState::loaded_fallback(const spec::Implementation& implementation,
                                          const Problem& bucket) const noexcept {
  return fallbacks_[static_cast<std::size_t>(&implementation - op.implementations.data())].find(bucket);
}

const PlanState* OpState::fallback(const spec::Implementation& implementation, const Problem& bucket) {
  if (const PlanState* loaded = loaded_fallback(implementation, bucket)) return loaded;
  const cuda::Context::Scope scope(engine.context);
  const cuda::RelaxedCapture relaxed;
  return make_once(fallbacks_[static_cast<std::size_t>(&implementation - op.implementations.data())], bucket, [&] {
    Lookup lookup;
    lookup.bucket = bucket;
    lookup.implementation = &implementation;
    lookup.config = implementation.default_config;
    return load(lookup);
  });
}

const PlanState* OpState::make_runner_up(const PlanState& library, Code code, Try when) {
  PlanState::RunnerUp& other = *library.runner_up;
  const cuda::Context::Scope scope(engine.context);
  const cuda::RelaxedCapture relaxed;
  const std::lock_guard making(other.making);
  if (other.settled.load(std::memory_order_relaxed)) return other.plan.get();
  if (when == Try::if_due && !other.retry.is_due(Retry::Clock::now())) return nullptr;
  try {
    other.plan = load_part(other.lookup, code);
  } catch (const std::exception& failure) {
    if (code == Code::stored || (when == Try::now && is_interrupt(failure))) throw;
    const bool passing = may_pass(failure);
    engine.warn(fmt::format("{}: the record '{}' is left out{}: {}", op.name, other.lookup.key,
                            passing ? " for now" : "", failure.what()));
    if (passing) {
      other.retry.failed(Retry::Clock::now());
      return nullptr;
    }
  }
  other.settled.store(true, std::memory_order_release);
  return other.plan.get();
}

void OpState::make_runner_ups(const PlanState& whole, Code code) {
  if (whole.runner_up != nullptr) make_runner_up(whole, code);
  for (const PlanState::LowerPart& part : whole.lower_parts) make_runner_ups(*part.plan, code);
}

const PlanState* OpState::runner_up(const PlanState& plan, CUstream stream) {
  if (plan.runner_up == nullptr) return nullptr;
  if (plan.runner_up->settled.load(std::memory_order_acquire)) return plan.made_runner_up();
  if (!plan.runner_up->retry.is_due(Retry::Clock::now())) return nullptr;
  return captures(stream) ? nullptr : make_runner_up(plan, Code::any, Try::if_due);
}

const PlanState& OpState::serving(const PlanState& part, const Problem& problem) const {
  const PlanState* other = part.made_runner_up();
  if (other == nullptr || !broken_constraint(part, problem) || broken_constraint(*other, problem)) return part;
  return *other;
}

void OpState::require_tensors(const Problem& problem, const Arguments& arguments) const {
  const auto selected = spec::make_frame(op, nullptr, problem, engine.context.info().facts);
  for (std::size_t i = 0; i < op.tensors.size(); ++i)
    if (arguments.tensors[i] == nullptr && !op.tensors[i].optional && spec::Op::takes_part(op.tensors[i], selected))
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: tensor '{}' is missing (a null address); set it in the call's Arguments", op.name,
                              op.tensors[i].name));
}

/// The first implementation whose default is legal serves; on a capturing stream, the first that is loaded. What a library refuses is
/// its runner-up's first.
[[gnu::noinline]] Origin OpState::launch_fallback(const PlanState& refused, const jit::CallFrame& filled,
                                                  const Problem& problem, const Arguments& arguments, CUstream stream) {
  require_tensors(problem, arguments);
  jit::CallFrame frame =
      filled;  // the thread's own is the next launch's, which may come while something is compiled here
  if (const PlanState* other = runner_up(refused, stream)) return launch_plan(*other, problem, arguments, stream);
  frame.tensors = arguments.tensors;  // what was refused may take fewer than what serves
  std::string reasons =
      fmt::format("{} {}: {}", refused.implementation, refused.config, refused.executable.explain(frame, arguments));
  std::string missing;  // on a capturing stream
  const Problem bucket = spec::bucket_of(op, problem);
  for (const spec::Implementation& implementation : op.implementations) {
    if (auto why = why_default_cannot_serve(implementation, bucket)) {
      reasons += fmt::format("; default of {}: {}", implementation.name, *why);
      continue;
    }
    const PlanState* plan = loaded_fallback(implementation, bucket);
    if (plan == nullptr && captures(stream)) {
      missing = fmt::format("{}; the default of {} is not loaded", reasons, implementation.name);
      continue;
    }
    if (plan == nullptr) plan = fallback(implementation, bucket);
    if (plan->executable.admits(frame, arguments) != jit::Admission::admitted) {
      reasons += fmt::format("; default of {}: {}", implementation.name, plan->executable.explain(frame, arguments));
    } else if (run(*plan, frame, arguments, stream) == Run::launched) {
      engine.counters.count_constraint_fallback();
      count(*plan, problem, Origin::default_);
      return Origin::default_;
    } else {
      missing = fmt::format("{}; the default of {} has no workspace for this stream", reasons, implementation.name);
    }
  }
  if (!missing.empty()) return launch_stand_in(problem, arguments, stream, missing);
  throw Error(ErrorKind::bad_input, fmt::format("{} {}: no implementation can serve this call: {}", op.name,
                                                spec::to_string(op, problem), reasons));
}

}  // namespace kiln::engine
