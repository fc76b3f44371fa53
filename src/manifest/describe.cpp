#include "manifest/describe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "manifest/problem.hpp"
#include "manifest/variant.hpp"

namespace kiln::manifest {
namespace {

std::vector<std::string> texts_of(const std::vector<Expression>& expressions) {
  std::vector<std::string> texts;
  for (const Expression& each : expressions) texts.push_back(each.text());
  return texts;
}

AxisDescription describe_axis(const Op& op, std::size_t index) {
  const Axis& axis = op.axes[index];
  return {.name = axis.name,
          .id = {static_cast<std::uint8_t>(index), op.tag},
          .policy = axis.team ? "exact" : policy_text(axis),
          .minimum = axis.minimum,
          .maximum = axis.maximum,
          .multiple_of = axis.multiple_of,
          .on_device = axis.on_device,
          .team = axis.team};
}

RuntimeDescription describe_runtime(const Op& op, std::size_t index) {
  const Runtime& value = op.runtime[index];
  return {.name = value.name,
          .id = runtime_id(op, index),
          .type = std::string(to_string(value.type)),
          .default_text = value.default_integer ? value.default_integer->text()
                          : value.default_real  ? value.default_real->text()
                                                : "",
          .bound_text = bound_text(value),
          .verify_text = value.verify_integer ? value.verify_integer->text()
                         : value.verify_real  ? value.verify_real->text()
                                              : "",
          .team_rank = value.team_rank};
}

TensorDescription describe_tensor(const Op& op, std::size_t index) {
  const Tensor& tensor = op.tensors[index];
  return {.name = tensor.name,
          .id = tensor_id(op, index),
          .type = tensor.selection >= 0 ? op.selections[static_cast<std::size_t>(tensor.selection)].name
                                        : std::string(to_string(tensor.dtype)),
          .shape = texts_of(tensor.shape),
          .strides = texts_of(tensor.strides),
          .output = tensor.output,
          .optional = tensor.optional,
          .per_rank = tensor.per_rank,
          .initialised = tensor.initialised ? tensor.initialised->text() : "",
          .when = tensor.when ? tensor.when->text() : ""};
}

/// The description's values at a problem.
class AtProblem {
 public:
  AtProblem(const Site& site, const Problem& problem)
      : site_(site), op_(*site.op), problem_(problem), frame_(frame_of(site, problem)) {
    for (const Implementation& each : op_.implementations)
      if (!each.is_library() && !is_empty(op_, problem) && !why_not_eligible(site, each, problem))
        eligible_.push_back(&each);
  }

  void fill(AxisDescription& axis, std::size_t index) const {
    axis.size = problem_.axes[index];
    if (axis.size == 0) return;
    axis.bucket_high = bucket_of(op_, problem_).axes[index];
    axis.bucket_low = low_corner(op_, bucket_of(op_, problem_)).axes[index];
  }

  void fill(RuntimeDescription& value, std::size_t index) const {
    const Runtime& runtime = op_.runtime[index];
    if (runtime.default_integer)
      value.default_value = frame_[static_cast<std::size_t>(op_.first_runtime()) + index];
    else if (runtime.default_real)
      if (const auto real = runtime.default_real->evaluate(frame_)) value.default_value = *real;
    if (runtime.minimum) value.minimum = number(*runtime.minimum, runtime.name);
    if (runtime.maximum) value.maximum = number(*runtime.maximum, runtime.name);
    if (const auto& upper = runtime.upper; upper && upper->reached)
      value.maximum = upper->value;
    else if (upper)
      value.exclusive_maximum = upper->value;
    if (!runtime.lower || (runtime.above_when && !runtime.above_when->evaluate(frame_).truth())) return;
    if (runtime.lower->reached)
      value.minimum = runtime.lower->value;
    else
      value.exclusive_minimum = runtime.lower->value;
  }

  void fill(TensorDescription& described, std::size_t index) const {
    const Tensor& tensor = op_.tensors[index];
    described.present = Op::takes_part(tensor, frame_);
    described.element = op_.dtype_of(tensor, frame_);
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const std::int64_t size = number(tensor.shape[i], tensor.name), stride = number(tensor.strides[i], tensor.name);
      described.sizes.push_back(size);
      described.default_strides.push_back(stride);
      std::int64_t reach = 0;
      if (__builtin_mul_overflow(std::max<std::int64_t>(size - 1, 0), stride, &reach) ||
          __builtin_add_overflow(elements, reach, &elements))
        refuse(tensor.name, "its extent overflows");
    }
    const bool is_empty = std::find(described.sizes.begin(), described.sizes.end(), 0) != described.sizes.end();
    if (is_empty) elements = 0;
    if (__builtin_mul_overflow(elements, size_of(*described.element), &described.bytes))
      refuse(tensor.name, "its bytes overflow");
    align(described, index);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, std::string_view why) const {
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: '{}' has no value at {}: {}", op_.name, name, display_text(op_, problem_), why));
  }
  [[nodiscard]] std::int64_t number(const Expression& expression, const std::string& name) const {
    const Value value = expression.evaluate(frame_);
    if (!value.ok()) refuse(name, fmt::format("{} is {}", expression.text(), to_string(value.status)));
    return value.number;
  }
  void align(TensorDescription& described, std::size_t index) const {
    const std::int64_t element = size_of(*described.element);
    described.least_alignment = eligible_.empty() ? element : std::int64_t{1} << 62;
    described.best_alignment = element;
    for (const Implementation* each : eligible_) {
      std::int64_t bytes = element;
      const auto frame = default_of(*each).frame(site_, problem_);
      for (const auto& [tensor, alignment] : each->alignment)
        if (static_cast<std::size_t>(tensor) == index) bytes = std::max(bytes, alignment.evaluate(frame).number);
      described.least_alignment = std::min(described.least_alignment, bytes);
      described.best_alignment = std::max(described.best_alignment, bytes);
    }
  }

  const Site& site_;
  const Op& op_;
  const Problem& problem_;
  std::vector<std::int64_t> frame_;
  std::vector<const Implementation*> eligible_;  // those with a default
};

}  // namespace

std::string contract_of(const Op& op) {
  const auto file = std::find_if(op.manifests.begin(), op.manifests.end(),
                                 [](const SourceFile& each) { return each.name == op_file; });
  if (file == op.manifests.end()) return "";
  std::string contract;
  for (std::string_view left = file->text; left.starts_with('#');) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    std::string_view line = left.substr(1, end - 1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    contract.append(line).append("\n");
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return contract;
}

std::string default_text(const Op& op, const Selection& selection) {
  if (selection.like < 0) return selection.values[selection.defaults[0]];
  const Selection& like = op.selections[static_cast<std::size_t>(selection.like)];
  std::string text = "as " + like.name;
  for (std::size_t i = 0; i < like.values.size(); ++i) {
    const std::string& word = selection.values[selection.defaults[i]];
    if (word != like.values[i])
      text += fmt::format("{}{} for {}", text.find("but") == std::string::npos ? ", but " : ", ", word, like.values[i]);
  }
  return text;
}

std::string_view to_string(RuntimeType type) noexcept {
  switch (type) {
    case RuntimeType::f32: return "f32";
    case RuntimeType::f64: return "f64";
    case RuntimeType::i32: return "i32";
    case RuntimeType::i64: return "i64";
    case RuntimeType::u32: return "u32";
    case RuntimeType::u64: break;
  }
  return "u64";
}

RuntimeId runtime_id(const Op& op, std::size_t index) noexcept {
  const RuntimeType type = op.runtime[index].type;
  return {static_cast<std::uint8_t>(index),
          type == RuntimeType::f32   ? RuntimeId::Kind::real32
          : type == RuntimeType::f64 ? RuntimeId::Kind::real64
                                     : RuntimeId::Kind::integer,
          op.tag};
}

TensorId tensor_id(const Op& op, std::size_t index) {
  TensorId id{static_cast<std::uint8_t>(index)};
  for (const Expression& stride : op.tensors[index].strides)
    if (const auto value = op.runtime_of(stride)) id.stride[id.strides++] = static_cast<std::uint8_t>(*value);
  id.op = op.tag;
  return id;
}

OpDescription describe(const Op& op) {
  OpDescription result;
  result.name = op.name;
  result.summary = op.summary;
  result.contract = contract_of(op);
  result.revision = op.revision;
  result.folder = op.folder;
  for (std::size_t i = 0; i < op.axes.size(); ++i) result.axes.push_back(describe_axis(op, i));
  for (const Selection& each : op.selections)
    result.selections.push_back({each.name, each.is_type(), each.values, default_text(op, each), ""});
  for (const Rule& each : op.allowed) result.rules.push_back({each.when.text(), each.message});
  for (std::size_t i = 0; i < op.runtime.size(); ++i) result.runtime.push_back(describe_runtime(op, i));
  for (std::size_t i = 0; i < op.tensors.size(); ++i) result.tensors.push_back(describe_tensor(op, i));
  for (const Implementation& each : op.implementations) result.implementations.push_back(each.name);
  return result;
}

OpDescription describe(const Site& site, const Problem& problem) {
  const Op& op = *site.op;
  check_problem(op, problem, Zeros::taken);
  OpDescription result = describe(op);
  const AtProblem at(site, problem);
  for (std::size_t i = 0; i < op.axes.size(); ++i) at.fill(result.axes[i], i);
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    result.selections[i].value = op.selections[i].values[problem.selections[i]];
  for (std::size_t i = 0; i < op.runtime.size(); ++i) at.fill(result.runtime[i], i);
  for (std::size_t i = 0; i < op.tensors.size(); ++i) at.fill(result.tensors[i], i);
  return result;
}

}  // namespace kiln::manifest
