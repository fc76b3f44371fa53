#include "manifest/binding_program.hpp"

#include <algorithm>
#include <optional>

#include "manifest/expression_tree.hpp"

namespace kiln::manifest {
namespace {

bool is_plain_axis(const BoundNumber& size) {
  return size.kind == BoundNumber::Kind::axis && size.times == 1 && size.plus == 0;
}

/// Writes the steps of a program.
class ProgramWriter {
 public:
  ProgramWriter(const Op& op, std::span<const std::int64_t> statics, const BindingForm& form, BindingProgram& program)
      : op_(op), statics_(statics), form_(form), to_(program), next_(static_cast<std::size_t>(op.first_static())) {
    to_.unused = static_cast<std::uint8_t>(next_++);
    first_constant_ = next_;
    for (const BoundTensor& each : form.tensors) first_constant_ += each.present ? each.rank : 0U;
    known_.resize(first_constant_);
    to_.zero = slot_of(0);
    to_.one = slot_of(1);
  }

  void write() {
    for (const bool are_required : {true, false})
      for (std::size_t i = 0; i < form_.tensors.size(); ++i)
        if (form_.tensors[i].present && form_.tensors[i].required == are_required) add_tensor(i);
    add_values();
    to_.has_rest = to_.shown_axes != to_.all_axes || !to_.solved.empty() || !to_.values.empty() || !to_.sizes.empty() ||
                   !to_.strides.empty();
    to_.is_usable = first_constant_ + to_.constants.size() <= BindingProgram::max_slots;
  }

 private:
  /// A slot that is written before any tensor is read.
  std::uint8_t slot_of(std::int64_t constant) {
    const auto found = std::find(to_.constants.begin(), to_.constants.end(), constant);
    const auto at = static_cast<std::size_t>(found - to_.constants.begin());
    if (found == to_.constants.end()) to_.constants.push_back(constant);
    return static_cast<std::uint8_t>(first_constant_ + at);
  }
  std::optional<std::uint8_t> slot_of(const Node& node) {
    if (node.operation == Operation::constant) return slot_of(node.operand);
    if (node.operation == Operation::slot) return static_cast<std::uint8_t>(node.operand);
    return std::nullopt;
  }
  /// `formula` says the same as `expression`.
  Expected expected(const Expression& expression, const Formula& formula) {
    const Expression number = expression.specialise(statics_, op_.first_static());
    const Node& tree = *number.tree();
    const bool multiplies = tree.operation == Operation::multiply;
    const auto left = slot_of(multiplies ? *tree.children[0] : tree);
    const auto right = multiplies ? slot_of(*tree.children[1]) : to_.one;
    if (left && right) return {*left, *right, nullptr};
    return {0, 0, &formula};
  }
  /// Whether the steps so far have written what the number is computed of.
  [[nodiscard]] bool is_known(const Expected& number) const {
    const auto is_written = [&](std::size_t slot) { return slot >= first_constant_ || known_[slot]; };
    return number.formula == nullptr && is_written(number.left) && is_written(number.right);
  }

  void add_tensor(std::size_t index) {
    const BoundTensor& tensor = form_.tensors[index];
    const Tensor& declared = op_.tensors[index];
    const DType type = op_.dtype_of(declared, statics_);
    BindingProgram::TensorStep step;
    step.header = header_of(type, tensor.rank, 0);
    step.tensor = static_cast<std::uint8_t>(index);
    step.rank = tensor.rank;
    step.element_bytes = static_cast<std::uint8_t>(size_of(type));
    step.is_element = tensor.is_element;
    for (std::size_t at = tensor.rank; at-- > 0;) {
      add_size(step, at);
      add_stride(step, at);
    }
    to_.present |= 1U << index;
    if (declared.output) to_.outputs.push_back(static_cast<std::uint8_t>(to_.steps.size()));
    to_.steps.push_back(step);
  }

  void add_size(BindingProgram::TensorStep& step, std::size_t at) {
    const BoundTensor& tensor = form_.tensors[step.tensor];
    const BoundNumber& size = tensor.sizes[at];
    BindingProgram::Dimension& dimension = step.dimensions[at];
    const bool is_shown = (to_.shown_axes >> size.index & 1U) != 0;
    if (is_plain_axis(size) && (is_shown || tensor.required)) {
      dimension.written = is_shown ? to_.unused : size.index;
      dimension.compared = size.index;
      to_.shown_axes |= 1U << size.index;
      known_[size.index] = true;
      return;
    }
    const auto slot = static_cast<std::uint8_t>(next_++);
    dimension.written = dimension.compared = slot;
    if (size.kind == BoundNumber::Kind::axis)
      to_.solved.push_back({step.tensor, slot, size.index, size.times, size.plus});
    else
      to_.sizes.push_back({step.tensor, slot, expected(op_.tensors[step.tensor].shape[at], size.formula)});
  }

  void add_stride(BindingProgram::TensorStep& step, std::size_t at) {
    const BoundTensor& tensor = form_.tensors[step.tensor];
    const BoundNumber& stride = tensor.strides[at];
    BindingProgram::Dimension& dimension = step.dimensions[at];
    dimension.stride = to_.unused;
    dimension.value = BindingProgram::later;
    dimension.left = dimension.right = to_.zero;
    // A dimension that is always 1 says nothing by its stride.
    if (tensor.sizes[at].kind == BoundNumber::Kind::constant && tensor.sizes[at].plus <= 1) return;
    if (stride.kind == BoundNumber::Kind::runtime && (to_.shown_values >> stride.index & 1U) == 0) {
      to_.shown_values |= 1U << stride.index;
      add_value(step, at);
      return;
    }
    const Expected number = expected(op_.tensors[step.tensor].strides[at], stride.formula);
    if (!is_known(number)) {
      to_.strides.push_back({step.tensor, static_cast<std::uint8_t>(at), number});
      return;
    }
    dimension.value = BindingProgram::none;
    dimension.left = number.left;
    dimension.right = number.right;
  }

  /// The first dimension of which a run-time value is the stride.
  void add_value(BindingProgram::TensorStep& step, std::size_t at) {
    const std::uint8_t index = form_.tensors[step.tensor].strides[at].index;
    const auto value = std::find_if(form_.values.begin(), form_.values.end(),
                                    [&](const BoundValue& each) { return each.index == index; });
    const Runtime& declared = op_.runtime[index];
    const auto slot = static_cast<std::uint8_t>(op_.first_runtime() + index);
    if (value->has_default && !value->has_maximum) {
      const Expected preset = expected(*declared.default_integer, value->default_value);
      const Expected least =
          value->has_minimum ? expected(*declared.minimum, value->minimum) : Expected{to_.zero, to_.one, nullptr};
      if (is_known(preset) && is_known(least) && least.right == to_.one) {
        step.dimensions[at] = {step.dimensions[at].written,
                               step.dimensions[at].compared,
                               preset.left,
                               preset.right,
                               index,
                               least.left,
                               slot};
        known_[slot] = true;
        return;
      }
    }
    to_.values.push_back({&*value, slot, step.tensor, static_cast<std::uint8_t>(at)});
  }

  /// Those that no step takes, in their order.
  void add_values() {
    std::vector<BindingProgram::ValueStep> ordered;
    for (const BoundValue& each : form_.values) {
      const auto found =
          std::find_if(to_.values.begin(), to_.values.end(), [&](const auto& of) { return of.value == &each; });
      const auto slot = static_cast<std::uint8_t>(op_.first_runtime() + each.index);
      if (found != to_.values.end())
        ordered.push_back(*found);
      else if (!known_[slot])
        ordered.push_back({&each, slot, BindingProgram::none, 0});
    }
    to_.values = std::move(ordered);
  }

  const Op& op_;
  std::span<const std::int64_t> statics_;
  const BindingForm& form_;
  BindingProgram& to_;
  std::size_t next_;                // slot of a size
  std::size_t first_constant_ = 0;  // slot
  std::vector<bool> known_;         // by slot: written by the steps so far
};

}  // namespace

BindingProgram::BindingProgram(const Op& op, std::span<const std::int64_t> statics, const BindingForm& form)
    : axes(static_cast<std::uint8_t>(op.axes.size())),
      tensors(static_cast<std::uint8_t>(op.tensors.size())),
      all_axes((1U << op.axes.size()) - 1),
      required(form.required) {
  ProgramWriter(op, statics, form, *this).write();
  Problem problem;
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    problem.selections[i] = static_cast<std::uint8_t>(statics[static_cast<std::size_t>(op.first_static()) + i]);
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    if (problem.selections[i] != op.selections[i].default_beside(problem)) unusual_selections |= 1U << i;
  for (std::size_t i = 0; i < op.tensors.size(); ++i)
    if (form.tensors[i].required && op.tensors[i].selection >= 0)
      unusual_selections &= ~(1U << op.tensors[i].selection);
}

}  // namespace kiln::manifest
