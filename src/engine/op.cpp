// kiln::Op and kiln::Plan. Their launches are elsewhere: plan/hit_path.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "engine/bindings.hpp"
#include "engine/miss_path.hpp"
#include "engine/state.hpp"
#include "kiln/engine.hpp"
#include "manifest/describe.hpp"
#include "manifest/text.hpp"
#include "plan/hit_path.hpp"

namespace kiln {
namespace {

template <class Range>
std::size_t index_of(const manifest::Op& op, const Range& range, std::string_view name, std::string_view what) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < range.size(); ++i) {
    if (range[i].name == name) return i;
    known.push_back(range[i].name);
  }
  throw Error(ErrorKind::bad_input, fmt::format("{} has no {} {}{}; it has: {}", op.name, what, manifest::quote(name),
                                                manifest::did_you_mean(name, known), fmt::join(known, ", ")));
}

/// For a name of Op::arguments that nothing has.
[[noreturn]] void refuse_argument(const manifest::Op& op, std::string_view name) {
  std::vector<std::string> known;
  for (const manifest::Tensor& each : op.tensors) known.push_back(each.name);
  for (const auto& each : op.runtime) known.push_back(each.name);
  for (const manifest::Axis& each : op.axes)
    if (each.on_device) known.push_back(each.name);
  throw Error(ErrorKind::bad_input,
              fmt::format("{} has no tensor, run-time value or axis {}{}; it has: {}", op.name, manifest::quote(name),
                          manifest::did_you_mean(name, known), fmt::join(known, ", ")));
}

void set_tensor(const manifest::Op& op, Arguments& arguments, TensorId tensor,
                const std::variant<const void*, std::int64_t, double>& value) {
  if (!std::holds_alternative<const void*>(value))
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: tensor '{}' takes a device address", op.name, op.tensors[tensor.index].name));
  arguments.set(tensor, std::get<const void*>(value));
}

void set_length(const manifest::Op& op, Arguments& arguments, AxisId axis,
                const std::variant<const void*, std::int64_t, double>& value) {
  if (!std::holds_alternative<const void*>(value))
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: axis '{}' takes the device address of its length here, and its size in the problem",
                            op.name, op.axes[axis.index].name));
  arguments.set(axis, static_cast<const std::int32_t*>(std::get<const void*>(value)));
}

void set_runtime(const manifest::Op& op, Arguments& arguments, RuntimeId runtime,
                 const std::variant<const void*, std::int64_t, double>& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value))
    arguments.set(runtime, *integer);
  else if (const auto* real = std::get_if<double>(&value); real != nullptr && runtime.kind != RuntimeId::Kind::integer)
    arguments.set(runtime, *real);
  else
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: run-time value '{}' takes {}", op.name, op.runtime[runtime.index].name,
                            runtime.kind == RuntimeId::Kind::integer ? "an integer" : "a number"));
}

/// The words of no bucket: no selection has the index 255.
constexpr auto no_bucket = [] {
  decltype(manifest::BucketWords::words) words{};
  words.fill(~std::uint64_t{0});
  return words;
}();

}  // namespace

std::string_view Op::name() const noexcept { return state_->op.name; }

AxisId Op::axis(std::string_view name) const {
  return {static_cast<std::uint8_t>(index_of(state_->op, state_->op.axes, name, "axis")), state_->op.tag};
}

TensorId Op::tensor(std::string_view name) const {
  return manifest::tensor_id(state_->op, index_of(state_->op, state_->op.tensors, name, "tensor"));
}

RuntimeId Op::runtime(std::string_view name) const {
  return manifest::runtime_id(state_->op, index_of(state_->op, state_->op.runtime, name, "run-time value"));
}

namespace {

std::vector<manifest::Setting> written(std::span<const Op::Setting> settings) {
  std::vector<manifest::Setting> written;
  for (const auto& [name, value] : settings) {
    const auto* number = std::get_if<std::int64_t>(&value);
    written.push_back({std::string(name),
                       number != nullptr ? fmt::to_string(*number) : std::string(std::get<std::string_view>(value))});
  }
  return written;
}

}  // namespace

Problem Op::problem(std::span<const Setting> settings) const {
  return manifest::make_problem(state_->op, written(settings), manifest::Zeros::taken);
}

Arguments Op::arguments(std::span<const Argument> arguments) const {
  const manifest::Op& op = state_->op;
  Arguments result;
  result.op = op.tag;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i].first;
    const auto& value = arguments[i].second;
    const auto before = arguments.first(i);
    if (std::any_of(before.begin(), before.end(), [&](const Argument& each) { return each.first == name; }))
      throw Error(ErrorKind::bad_input,
                  fmt::format("{}: {} is given twice, expected it once", op.name, manifest::quote(name)));
    const auto is_one_of = [&](const auto& range) {
      return std::any_of(range.begin(), range.end(), [&](const auto& each) { return each.name == name; });
    };
    if (is_one_of(op.runtime))
      set_runtime(op, result, runtime(name), value);
    else if (is_one_of(op.axes))
      set_length(op, result, axis(name), value);
    else if (is_one_of(op.tensors))
      set_tensor(op, result, tensor(name), value);
    else
      refuse_argument(op, name);
  }
  return result;
}

Binding Op::binding(std::span<const Setting> settings, std::span<const Argument> values) const {
  const manifest::Op& op = state_->op;
  Binding binding;
  const manifest::PartOfProblem part = manifest::make_part(op, written(settings));
  binding.problem = part.problem;
  binding.axes_given = part.axes;
  binding.selections_given = part.selections;
  binding.arguments = arguments(values);
  binding.values_given = binding.arguments.runtime_set;
  return binding;
}

void Op::bind(Binding& binding, std::span<const Operand> operands) const {
  state_->binder.bind(binding, operands, state_->owner.options.device);
}

bool engine::Bindings::try_bind(const Op& op, const manifest::BindingParts& binding,
                                std::span<const Operand> operands) noexcept {
  return op.state_->binder.try_bind(binding, operands, op.state_->owner.options.device);
}

OpDescription Op::describe() const { return manifest::describe(state_->op); }

OpDescription Op::describe(const Problem& problem) const { return manifest::describe(state_->site(), problem); }

Plan Op::plan(const Problem& problem, Stream stream) const {
  manifest::check_problem(state_->op, problem, manifest::Zeros::taken);
  if (manifest::is_empty(state_->op, problem)) {
    plan::launch_nothing(*state_, problem);
    return {state_, nullptr, no_bucket.data()};
  }
  const plan::PlanState* plan = engine::make_ready(*state_, problem, stream);
  return {state_, plan, plan->words.data()};
}

// A plan of a problem with a size of 0 has no state.
Origin Plan::origin() const noexcept { return state_ == nullptr ? Origin::hot : state_->origin; }
std::string_view Plan::implementation() const noexcept {
  return state_ == nullptr ? std::string_view() : state_->answer.implementation->name;
}
std::string_view Plan::config() const noexcept { return state_ == nullptr ? std::string_view() : state_->config; }
double Plan::cost_ns() const noexcept { return state_ == nullptr ? 0 : state_->answer.cost_ns; }
Footprint Plan::footprint() const {
  if (state_ == nullptr) return {};
  const cuda::Context::Scope scope(op_->owner.context);
  const cuda::RelaxedCapture relaxed;
  const jit::Resources resources = state_->executable.resources();
  return {resources.registers, resources.spill_bytes, state_->executable.occupancy()};
}

std::int64_t Plan::workspace_bytes() const noexcept {
  if (state_ == nullptr) return 0;
  return state_->executable.workspace_bytes() + state_->executable.zeroed_bytes();
}

}  // namespace kiln
