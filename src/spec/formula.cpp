#include "spec/formula.hpp"

#include <bit>

namespace kiln::spec {
namespace {

/// The operation that gives for (b, a) what `operation` gives for (a, b); nothing when none does.
std::optional<Operation> turned(Operation operation) {
  switch (operation) {
    case Operation::add:
    case Operation::multiply:
    case Operation::minimum:
    case Operation::maximum:
    case Operation::equal:
    case Operation::not_equal: return operation;
    case Operation::less: return Operation::greater;
    case Operation::greater: return Operation::less;
    case Operation::less_equal: return Operation::greater_equal;
    case Operation::greater_equal: return Operation::less_equal;
    default: return std::nullopt;
  }
}

bool stops_early(Operation operation) {
  return operation == Operation::choose || operation == Operation::logical_and || operation == Operation::logical_or;
}

}  // namespace

Formula::Formula(const Expression& expression) {
  if (append(*expression.tree_)) return;
  *this = Formula();
  start_ = Start::expression;
  expression_ = std::make_shared<const Expression>(expression);
}

bool Formula::append(const Node& node) {
  if (node.operation == Operation::constant) {
    constant_ = node.operand;
    return true;
  }
  if (node.operation == Operation::slot) {
    start_ = Start::slot;
    slot_ = static_cast<std::uint16_t>(node.operand);
    return true;
  }
  if (stops_early(node.operation)) return false;
  if (node.children.size() == 1) return append(*node.children[0]) && append_step(node.operation, 0);
  const Node& left = *node.children[0];
  const Node& right = *node.children[1];
  if (right.operation == Operation::constant) return append(left) && append_step(node.operation, right.operand);
  const auto other = turned(node.operation);
  return other && left.operation == Operation::constant && append(right) && append_step(*other, left.operand);
}

bool Formula::append_step(Operation operation, std::int64_t operand) {
  if (steps_ == chain_.size()) return false;
  Step& step = chain_[steps_++];
  step.operation = operation;
  step.operand = operand;
  const bool divides =
      operation == Operation::ceil_div || operation == Operation::divide || operation == Operation::remainder;
  if (divides && operand > 0 && std::has_single_bit(static_cast<std::uint64_t>(operand))) {
    step.shifts = true;
    step.shift = static_cast<std::uint8_t>(std::countr_zero(static_cast<std::uint64_t>(operand)));
  }
  return true;
}

bool Formula::same_chain(const Formula& other) const noexcept {
  return start_ != Start::expression && start_ == other.start_ && steps_ == other.steps_ && slot_ == other.slot_ &&
         constant_ == other.constant_ && chain_ == other.chain_;
}

bool Formula::evaluate_expression(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
  const Value value = expression_->evaluate(frame);
  number = value.number;
  return value.ok();
}

}  // namespace kiln::spec
