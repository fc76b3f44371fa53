#include "manifest/binding_form.hpp"

#include <algorithm>

#include "manifest/expression_tree.hpp"
#include "manifest/problem.hpp"

namespace kiln::manifest {
namespace {

/// Whether the tree is an axis, times and plus numbers: then `number` has them.
bool is_linear(const Node& node, int axes, BoundNumber& number) {
  if (node.operation == Operation::slot && node.operand < axes) {
    number.index = static_cast<std::uint8_t>(node.operand);
    return true;
  }
  if (node.operation != Operation::multiply && node.operation != Operation::add) return false;
  const Node& left = *node.children[0];
  const Node& right = *node.children[1];
  const bool left_is_number = left.operation == Operation::constant;
  if (left_is_number == (right.operation == Operation::constant)) return false;
  const std::int64_t by = left_is_number ? left.operand : right.operand;
  if (!is_linear(left_is_number ? right : left, axes, number)) return false;
  if (node.operation == Operation::add) return !__builtin_add_overflow(number.plus, by, &number.plus);
  return by > 0 && !__builtin_mul_overflow(number.times, by, &number.times) &&
         !__builtin_mul_overflow(number.plus, by, &number.plus);
}

/// `expression` is specialised.
BoundNumber bound(const Op& op, const Expression& expression) {
  BoundNumber number;
  number.formula = Formula(expression);
  if (const auto constant = expression.constant_value()) {
    number.plus = *constant;
    return number;
  }
  const Node& tree = *expression.tree();
  if (is_linear(tree, static_cast<int>(op.axes.size()), number)) {
    number.kind = BoundNumber::Kind::axis;
  } else if (tree.operation == Operation::slot) {
    number.kind = BoundNumber::Kind::runtime;
    number.index = static_cast<std::uint8_t>(tree.operand - op.first_runtime());
  } else {
    number.kind = BoundNumber::Kind::formula;
  }
  return number;
}

/// Whether two sizes are equal at every problem of these types and choices, as their expressions say.
bool are_equal(const BoundNumber& left, const Expression& of_left, const BoundNumber& right,
               const Expression& of_right) {
  if (left.kind != right.kind) return false;
  if (left.kind == BoundNumber::Kind::formula) return of_left.text() == of_right.text();
  return left.index == right.index && left.times == right.times && left.plus == right.plus;
}

bool have_same_shape(const Op& op, const std::vector<BoundTensor>& tensors, std::size_t i, std::size_t j) {
  if (tensors[i].rank != tensors[j].rank) return false;
  for (std::size_t at = 0; at < tensors[i].rank; ++at)
    if (!are_equal(tensors[i].sizes[at], op.tensors[i].shape[at], tensors[j].sizes[at], op.tensors[j].shape[at]))
      return false;
  return true;
}

}  // namespace

std::vector<std::int64_t> static_frame(const Op& op, const DeviceFacts& facts, const Problem& problem) {
  std::vector<std::int64_t> frame(static_cast<std::size_t>(op.first_static()));
  for (std::size_t i = 0; i < op.selections.size(); ++i) frame.push_back(problem.selections[i]);
  frame.insert(frame.end(), facts.values.begin(), facts.values.end());
  return frame;
}

BindingForm::BindingForm(const Op& op, const DeviceFacts& facts, const Problem& problem)
    : selections{selection_word(problem, 0), selection_word(problem, 1)} {
  const std::vector<std::int64_t> frame = static_frame(op, facts, problem);
  const auto folded = [&](const Expression& expression) { return expression.specialise(frame, op.first_static()); };
  std::uint32_t needed = 0;  // bit i: run-time value i
  const auto need = [&](const Expression& expression) {
    for (const int slot : expression.slots())
      if (slot >= op.first_runtime() && slot < op.first_static()) needed |= 1U << (slot - op.first_runtime());
  };
  for (std::size_t i = 0; i < op.tensors.size(); ++i) {
    const Tensor& tensor = op.tensors[i];
    BoundTensor& made = tensors.emplace_back();
    made.present = Op::takes_part(tensor, frame);
    made.required = made.present && !tensor.optional;
    made.rank = static_cast<std::uint8_t>(tensor.shape.size());
    if (made.required) required |= 1U << i;
    made.is_element = true;
    for (std::size_t at = 0; at < tensor.shape.size(); ++at) {
      if (made.present) {
        need(folded(tensor.shape[at]));
        need(folded(tensor.strides[at]));
      }
      made.is_element = made.is_element && folded(tensor.shape[at]).constant_value() == 1;
      made.sizes[at] = bound(op, folded(tensor.shape[at]));
      made.strides[at] = bound(op, folded(tensor.strides[at]));
      if (made.present && made.strides[at].kind == BoundNumber::Kind::runtime)
        stride_values |= 1U << made.strides[at].index;
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::size_t j = 0; j < tensors.size(); ++j)
      if (have_same_shape(op, tensors, i, j)) tensors[i].same_shape |= 1U << j;
  for (std::size_t i = op.runtime.size(); i-- > 0;) {  // a value is computed by those before it
    const Runtime& value = op.runtime[i];
    if ((needed >> i & 1U) == 0 || !value.is_integer()) continue;
    BoundValue made;
    made.index = static_cast<std::uint8_t>(i);
    made.has_default = value.default_integer.has_value();
    made.has_minimum = value.minimum.has_value();
    made.has_maximum = value.maximum.has_value();
    for (const auto& [from, to] : {std::pair(&value.default_integer, &made.default_value),
                                   {&value.minimum, &made.minimum},
                                   {&value.maximum, &made.maximum}}) {
      if (!*from) continue;
      const Expression expression = folded(**from);
      need(expression);
      *to = Formula(expression);
    }
    values.push_back(std::move(made));
  }
  std::reverse(values.begin(), values.end());
}

}  // namespace kiln::manifest
