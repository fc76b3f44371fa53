#include "manifest/formula.hpp"

#include <bit>
#include <utility>

#include "manifest/expression_arithmetic.hpp"

namespace kiln::manifest {
namespace {

/// Returns the operation that gives for (b, a) what `operation` gives for (a, b), or nothing when there is none.
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
  Tail tail;
  if (append(*expression.tree_, tail)) {
    settle(tail);
    if (steps_ > 0) tail_ = std::make_shared<const Tail>(std::move(tail));
    return;
  }
  *this = Formula();
  start_ = Start::expression;
  tail_ = std::make_shared<const Tail>(Tail{{}, expression});
}

std::vector<Formula> Formula::conjuncts(const Expression& expression) {
  const Node& node = *expression.tree_;
  if (node.operation != Operation::logical_and) return {Formula(expression)};
  std::vector<Formula> all;
  for (const Tree& child : node.children) {
    const std::vector<Formula> part = conjuncts(Expression(expression.text_, child));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

bool Formula::append(const Node& node, Tail& tail) {
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
  if (node.children.size() == 1) return append(*node.children[0], tail) && append_step(node.operation, 0, tail);
  const Node& left = *node.children[0];
  const Node& right = *node.children[1];
  if (node.operation == Operation::multiply && left.operation == Operation::slot &&
      right.operation == Operation::slot) {
    start_ = Start::product;
    slot_ = static_cast<std::uint16_t>(left.operand);
    factor_ = static_cast<std::uint16_t>(right.operand);
    return true;
  }
  if (right.operation == Operation::constant)
    return append(left, tail) && append_step(node.operation, right.operand, tail);
  const bool multiplies = node.operation == Operation::multiply;
  if (multiplies && (left.operation == Operation::slot || right.operation == Operation::slot)) {
    const bool by_right = right.operation == Operation::slot;
    const Node& chain = by_right ? left : right;
    if (chain.operation != Operation::constant) {
      if (!append(chain, tail) || !append_step(node.operation, (by_right ? right : left).operand, tail)) return false;
      tail.chain[steps_ - 1U].by_slot = true;
      return true;
    }
  }
  const auto other = turned(node.operation);
  return other && left.operation == Operation::constant && append(right, tail) &&
         append_step(*other, left.operand, tail);
}

bool Formula::append_step(Operation operation, std::int64_t operand, Tail& tail) {
  if (steps_ == most_steps) return false;
  Step& step = tail.chain[steps_++];
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

void Formula::settle(const Tail& tail) noexcept {
  std::size_t step = 0;
  // Returns the operand of the next step when that step is this operation.
  const auto next = [&](Operation operation, std::uint64_t lowest,
                        std::uint64_t limit) -> std::optional<std::uint32_t> {
    if (step == steps_ || tail.chain[step].operation != operation || tail.chain[step].by_slot) return std::nullopt;
    const auto operand = static_cast<std::uint64_t>(tail.chain[step].operand);
    if (operand < lowest || operand >= limit) return std::nullopt;
    ++step;
    return static_cast<std::uint32_t>(operand);
  };
  if (const auto divisor = next(Operation::ceil_div, 1, share_limit)) {
    rounds_up_by_ = *divisor - 1;
    reciprocal_ = ((std::uint64_t{1} << 63) + rounds_up_by_) / *divisor;
  }
  while (const auto factor = next(Operation::multiply, 1, share_limit / times_)) times_ *= *factor;
  if (const auto most = next(Operation::minimum, 0, share_limit)) {
    most_ = *most;
    while (const auto factor = next(Operation::multiply, 1, share_limit / scale_)) scale_ *= *factor;
  }
  if (start_ != Start::slot) return;
  if (step == steps_) shares_below_ = share_limit;
  if (step + 1 != steps_ || !tail.chain[step].by_slot) return;
  share_by_slot_ = true;
  factor_ = static_cast<std::uint16_t>(tail.chain[step].operand);
}

bool Formula::same_chain(const Formula& other) const noexcept {
  if (start_ == Start::expression || start_ != other.start_ || steps_ != other.steps_) return false;
  if (slot_ != other.slot_ || factor_ != other.factor_ || constant_ != other.constant_) return false;
  return steps_ == 0 || tail_->chain == other.tail_->chain;
}

std::optional<Formula::Multiple> Formula::divisible() const noexcept {
  if (start_ != Start::slot || steps_ != 2) return std::nullopt;
  const auto& [divides, compares] = std::pair(tail_->chain[0], tail_->chain[1]);
  const bool is_one = divides.operation == Operation::remainder && divides.shifts &&
                      compares.operation == Operation::equal && compares.operand == 0;
  return is_one ? std::optional(Multiple{slot_, divides.operand}) : std::nullopt;
}

bool Formula::is_at_least(std::int64_t least, std::span<const Range> slots) const noexcept {
  if (steps_ > 0 || (start_ != Start::slot && start_ != Start::product)) return false;
  const std::int64_t one = slots[slot_].lowest, other = start_ == Start::product ? slots[factor_].lowest : 1;
  std::int64_t lowest = 0;
  // Where the lowest product has no value, no product has one.
  return one > 0 && other > 0 && (__builtin_mul_overflow(one, other, &lowest) || lowest >= least);
}

inline bool Formula::take(const Step& step, std::span<const std::int64_t> frame, std::int64_t& value) noexcept {
  if (step.by_slot) return !__builtin_mul_overflow(value, frame[static_cast<std::size_t>(step.operand)], &value);
  if (step.shifts && value >= 0) {  // a division takes the processor longer than the rest of the formula
    const std::int64_t mask = (std::int64_t{1} << step.shift) - 1;
    switch (step.operation) {
      case Operation::ceil_div: value = (value >> step.shift) + ((value & mask) != 0); return true;
      case Operation::divide: value >>= step.shift; return true;
      default: value &= mask; return true;  // remainder
    }
  }
  const Value result =
      step.operation <= Operation::absolute ? apply(step.operation, value) : apply(step.operation, value, step.operand);
  value = result.number;
  return result.ok();
}

bool Formula::evaluate_steps(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
  if (share_by_slot_ && take_share(static_cast<std::uint64_t>(frame[slot_]), share_limit, number))
    return !__builtin_mul_overflow(number, frame[factor_], &number);
  if (start_ == Start::expression) {
    const Value value = tail_->expression.evaluate(frame);
    number = value.number;
    return value.ok();
  }
  if (start_ == Start::product) {
    if (__builtin_mul_overflow(frame[slot_], frame[factor_], &number)) return false;
  } else {
    number = start_ == Start::slot ? frame[slot_] : constant_;
  }
  for (std::size_t i = 0; i < steps_; ++i)
    if (!take(tail_->chain[i], frame, number)) return false;
  return true;
}

}  // namespace kiln::manifest
