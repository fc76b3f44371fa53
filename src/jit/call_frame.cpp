// Run-time values of a call: folded for a bucket, and which of them is refused, with the reason.
#include <fmt/format.h>

#include <bit>

#include "jit/executable.hpp"

namespace kiln::jit {
namespace {

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
    case Fault::over_maximum:
      return fmt::format("{} is {}, over its maximum ({})", name, value, runtime.maximum->text());
    case Fault::out_of_limits:
      if (!runtime.is_integer())
        return fmt::format("{} is {}, expected a finite number {}", name, real_of(runtime.type, value),
                           manifest::bound_text(runtime));
      if (!runtime.team_rank) return fmt::format("{} is {}, which its type cannot hold", name, value);
      return fmt::format("{} is {}, and the team's rank is {}; leave it out of the call's Arguments", name, value,
                         runtime.default_integer->text());
    default: return name + " overflows 64 bits at these sizes";
  }
}

}  // namespace

std::pair<std::size_t, Fault> LaunchForm::refused(CallFrame& call, const Arguments& arguments) const noexcept {
  for (std::uint32_t left = (arguments.runtime_set & declared) | open_defaults; left != 0; left &= left - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(left));
    const bool given = (arguments.runtime_set >> i & 1U) != 0;
    const Fault fault = runtime[i].fill(given, arguments.runtime[i], call.view(), call.slots[values[i]]);
    if (fault != Fault::none) return {i, fault};
  }
  return {0, Fault::none};
}

std::vector<manifest::Runtime> runtime_at(const manifest::Op& op, std::span<const std::int64_t> frame) {
  std::vector<manifest::Runtime> runtime = op.runtime;
  for (manifest::Runtime& each : runtime) {
    if (each.default_integer) each.default_integer = each.default_integer->specialise(frame, op.first_static());
    if (each.default_real)  // make_frame has checked that there is a value
      each.default_real = manifest::RealExpression::constant(each.default_real->evaluate(frame).value());
    if (each.minimum) each.minimum = each.minimum->specialise(frame, op.first_static());
    if (each.maximum) each.maximum = each.maximum->specialise(frame, op.first_static());
    if (each.above_when && !each.above_when->evaluate(frame).truth()) each.lower.reset();
    each.above_when.reset();
  }
  return runtime;
}

std::string why_defaults_refused(const manifest::Site& site, const Problem& problem) {
  const std::vector<std::int64_t> frame = manifest::frame_of(site, problem);
  const manifest::Op& op = *site.op;
  const std::vector<manifest::Range> any(frame.size());
  for (const manifest::Runtime& each : runtime_at(op, frame)) {
    std::int64_t value = 0;
    const Fault fault = form_of(each, any, {}, any).fill(false, 0, frame, value);
    if (fault != Fault::none && fault != Fault::missing) return text_of(fault, op.name, each, value);
  }
  return {};
}

std::string Executable::explain_frame(const Problem& problem, const Arguments& arguments) const {
  CallFrame call{};
  if (form_.fill(call, problem, arguments)) return {};
  const auto [index, fault] = form_.refused(call, arguments);
  return text_of(fault, op_, runtime_[index], call.slots[layout_.values[index]]);
}

}  // namespace kiln::jit
