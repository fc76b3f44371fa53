#include "manifest/op.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kiln::manifest {
namespace {

struct Facts {
  std::string_view name, cpp;
  std::int64_t size;
};
// In the order of DType.
constexpr std::array facts = {
    Facts{"bf16", "kiln::bf16", 2}, Facts{"f16", "kiln::f16", 2},    Facts{"f32", "float", 4},
    Facts{"f64", "double", 8},      Facts{"e4m3", "kiln::e4m3", 1},  Facts{"e5m2", "kiln::e5m2", 1},
    Facts{"i8", "signed char", 1},  Facts{"u8", "unsigned char", 1}, Facts{"i32", "int", 4},
    Facts{"i64", "long long", 8},
};
static_assert(facts.size() == static_cast<std::size_t>(DType::i64) + 1);

/// A caller may cast any number to DType.
const Facts& of(DType type) noexcept {
  static constexpr Facts unknown{"unknown", "", 0};
  const auto index = static_cast<std::size_t>(type);
  return index < facts.size() ? facts[index] : unknown;
}

}  // namespace

std::string_view to_string(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_reduce: break;
  }
  return "all_reduce";
}

std::string_view cpp_name(DType type) noexcept { return of(type).cpp; }

std::vector<Expression> Tensor::open_strides() const {
  std::vector<Expression> open;
  for (const Expression& each : strides)
    if (!each.constant_value()) open.push_back(each);
  return open;
}

const BucketPolicy& Axis::policy_at(std::span<const std::int64_t> frame) const noexcept {
  std::size_t i = 0;
  while (i + 1 < policies.size() && !policies[i].when->evaluate(frame).truth()) ++i;
  return policies[i].policy;
}

std::string policy_text(const Axis& axis) {
  std::string text;
  for (const PolicyCase& each : axis.policies) {
    const std::string_view between = text.empty() ? "" : each.when ? ", " : ", else ";
    text += fmt::format("{}{}{}", between, each.policy.text(), each.when ? " when " + each.when->text() : "");
  }
  return text;
}

std::string bound_text(const Runtime& value) {
  if (value.is_integer()) {
    if (!value.maximum) return value.minimum ? value.minimum->text() : "";
    return value.minimum ? fmt::format("{} to {}", value.minimum->text(), value.maximum->text())
                         : "at most " + value.maximum->text();
  }
  if (!value.lower) return "";
  std::string text = fmt::format("{} {}", value.lower->reached ? "at least" : "above", value.lower->value);
  if (value.upper) text += fmt::format(" and {} {}", value.upper->reached ? "at most" : "below", value.upper->value);
  return value.above_when ? text + " where " + value.above_when->text() : text;
}

int Op::first_parameter() const noexcept { return first_device_fact() + static_cast<int>(DeviceFacts::names.size()); }

std::vector<int> Op::index_tensors() const {
  const auto is_integer = [](DType type) {
    using enum DType;
    return type == i8 || type == u8 || type == i32 || type == i64;
  };
  std::vector<int> found;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const int selection = tensors[i].selection;
    if (selection < 0 ? is_integer(tensors[i].dtype)
                      : std::ranges::all_of(selections[static_cast<std::size_t>(selection)].dtypes, is_integer))
      found.push_back(static_cast<int>(i));
  }
  return found;
}

const Tensor* Op::reported_tensor(std::size_t word) const {
  if (word < axes.size()) return nullptr;
  const std::vector<int> of = index_tensors();
  return word - axes.size() < of.size() ? &tensors[static_cast<std::size_t>(of[word - axes.size()])] : nullptr;
}

std::size_t Argument::words() const noexcept {
  const bool is_view = kind == ArgumentKind::view || kind == ArgumentKind::workspace_view;
  if (kind != ArgumentKind::pack) return is_view ? 1 + strides.size() : 1;
  std::size_t words = 0;
  for (const Argument& each : members) words += each.words();
  return words;
}

std::optional<std::size_t> Op::runtime_of(const Expression& expression) const {
  for (std::size_t i = 0; i < runtime.size(); ++i)
    if (expression.text() == runtime[i].name) return i;
  return std::nullopt;
}

int Op::team_axis() const noexcept {
  const auto found = std::ranges::find(axes, true, &Axis::team);
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

const Implementation* Op::find(std::string_view implementation) const noexcept {
  const auto found = std::ranges::find(implementations, implementation, &Implementation::name);
  return found == implementations.end() ? nullptr : &*found;
}

DType Op::dtype_of(const ElementType& element, std::span<const std::int64_t> frame) const noexcept {
  if (element.selection < 0) return element.dtype;
  const auto chosen = static_cast<std::size_t>(
      frame[static_cast<std::size_t>(first_static()) + static_cast<std::size_t>(element.selection)]);
  return selections[static_cast<std::size_t>(element.selection)].dtypes[chosen];
}

Tolerance Op::tolerance_of(const Tensor& output, std::span<const std::int64_t> frame) const {
  const auto of_type = tolerance.find(dtype_of(output, frame));
  if (output.tolerance.empty() && of_type == tolerance.end()) return {};
  const std::vector<Tolerance>& list = output.tolerance.empty() ? of_type->second : output.tolerance;
  const auto counts = [&](const Tolerance& each) { return !each.when || each.when->evaluate(frame).truth(); };
  const auto first = std::ranges::find_if(list, counts);
  return first == list.end() ? Tolerance{} : *first;
}

}  // namespace kiln::manifest

namespace kiln {

std::string_view to_string(DType type) noexcept { return manifest::of(type).name; }
std::int64_t size_of(DType type) noexcept { return manifest::of(type).size; }

std::optional<DType> parse_dtype(std::string_view name) noexcept {
  for (std::size_t i = 0; i < manifest::facts.size(); ++i)
    if (manifest::facts[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace kiln
