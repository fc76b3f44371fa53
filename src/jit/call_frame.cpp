// Names the run-time value that makes LaunchForm::fill return false.
#include <fmt/format.h>

#include <bit>

#include "jit/executable.hpp"

namespace kiln::jit {
namespace {

enum class Fault : std::uint8_t { none, missing, not_computable, under_minimum, not_above, out_of_type, other_rank };

Fault fill_one(const manifest::Runtime& runtime, bool given, std::int64_t bits, std::span<const std::int64_t> frame,
               std::int64_t& slot) noexcept {
  if (!runtime.is_integer()) {
    if (!given && !runtime.default_real) return Fault::missing;
    slot = given ? bits : bits_of(runtime.type, runtime.default_real->evaluate(frame).value_or(0));
    if (runtime.above && !bits_above(runtime.type, *runtime.above).contains(slot)) return Fault::not_above;
    return Fault::none;
  }
  if (given) {
    slot = bits;
    if (runtime.team_rank && runtime.default_integer && bits != runtime.default_integer->constant_value())
      return Fault::other_rank;
  } else {
    if (!runtime.default_integer) return Fault::missing;
    const manifest::Value value = runtime.default_integer->evaluate(frame);
    if (!value.ok()) return Fault::not_computable;
    slot = value.number;
  }
  const manifest::Range limits = range_of(runtime.type);
  if (slot < limits.lowest || slot > limits.highest) return Fault::out_of_type;
  if (!runtime.minimum) return Fault::none;
  const manifest::Value minimum = runtime.minimum->evaluate(frame);
  if (!minimum.ok()) return Fault::not_computable;
  return slot < minimum.number ? Fault::under_minimum : Fault::none;
}

/// Fills the slots of the call. Returns the index of the first run-time value that is missing or out of its limits, else -1.
int fill_slots(CallFrame& call, std::span<const manifest::Runtime> runtime, std::size_t axes, const Problem& problem,
               const Arguments& arguments, Fault& fault) noexcept {
  for (std::size_t i = 0; i < axes; ++i) call.slots[i] = problem.axes[i];
  for (std::size_t i = 0; i < runtime.size(); ++i) {
    const bool given = (arguments.runtime_set >> i & 1U) != 0;
    fault = fill_one(runtime[i], given, arguments.runtime[i], call.view(), call.slots[axes + i]);
    if (fault != Fault::none) return static_cast<int>(i);
  }
  return -1;
}

double real_of(manifest::RuntimeType type, std::int64_t bits) noexcept {
  if (type == manifest::RuntimeType::f64) return std::bit_cast<double>(bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<std::int32_t>(bits)));
}

std::string text_of(Fault fault, const std::string& op, const manifest::Runtime& runtime, std::int64_t value) {
  const std::string name = fmt::format("{}: run-time value '{}'", op, runtime.name);
  switch (fault) {
    case Fault::missing: return name + " was not given and has no default; set it in the call's Arguments";
    case Fault::under_minimum:
      return fmt::format("{} is {}, under its minimum ({})", name, value, runtime.minimum->text());
    case Fault::not_above:
      return fmt::format("{} is {}, expected a finite number above {}", name, real_of(runtime.type, value),
                         *runtime.above);
    case Fault::out_of_type: return fmt::format("{} is {}, which its type cannot hold", name, value);
    case Fault::other_rank:
      return fmt::format("{} is {}, and the team's rank is {}; leave it out of the call's Arguments", name, value,
                         runtime.default_integer->text());
    default: return name + " overflows 64 bits at these sizes";
  }
}

}  // namespace

std::string why_defaults_refused(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device) {
  const std::vector<std::int64_t> frame = manifest::make_frame(op, nullptr, problem, device);
  for (const manifest::Runtime& each : op.runtime) {
    std::int64_t value = 0;
    const Fault fault = fill_one(each, false, 0, frame, value);
    if (fault != Fault::none && fault != Fault::missing) return text_of(fault, op.name, each, value);
  }
  return {};
}

std::string Executable::explain_frame(const Problem& problem, const Arguments& arguments) const {
  CallFrame call{};
  Fault fault = Fault::none;
  const int index = fill_slots(call, runtime_, axes_, problem, arguments, fault);
  if (index < 0) return {};
  const manifest::Runtime& runtime = runtime_[static_cast<std::size_t>(index)];
  return text_of(fault, op_, runtime, call.slots[axes_ + static_cast<std::size_t>(index)]);
}

}  // namespace kiln::jit
