// An expression in the form that the hit path evaluates: flat, without text or tree, and fast for the usual launch
// geometry.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "manifest/expression.hpp"

namespace kiln::manifest {

/// A chain: a number, a slot or a product of two slots, then a few operations with numbers, or multiplications by
/// slots, such as rows, ceil_div(rows, 64), stride * 2 % 16 == 0, rows * stride, ceil_div(rows, 64) * 16 * batch. Any
/// other expression is evaluated as an Expression. Most grids are a share: min(ceil_div(slot, divisor) * times, most) *
/// scale, such as rows, ceil_div(m, 192) * 32 or min(ceil_div(m, 256) * 16, 66) * 2. A share, and a share times a
/// slot, is evaluated without a loop over operations.
class Formula {
 public:
  Formula() = default;  // 0
  /// `expression` is specialised (Expression::specialise); `within` gives the ranges of its slots.
  explicit Formula(const Expression& expression);
  /// Splits the expression into formulas that all hold exactly where the expression holds: `a && b` gives two.
  static std::vector<Formula> conjuncts(const Expression& expression);

  /// Sets the number that Expression::evaluate gives; returns false when there is none. The frame must have at least
  /// one slot. No allocation, no exception.
  [[nodiscard]] bool evaluate(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
    if (evaluate_share(frame, number)) [[likely]]
      return true;
    std::int64_t stepped = 0;  // a separate variable, so that `number` stays in a register
    const bool has_value = evaluate_steps(frame, stepped);
    number = stepped;
    return has_value;
  }
  /// Does the same for a share of a slot under share_limit; else returns false, although there may be a value. Makes no
  /// call.
  [[nodiscard]] bool evaluate_share(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
    return take_share(static_cast<std::uint64_t>(frame[slot_]), shares_below_, number);
  }
  /// True when the value exists and is not zero.
  [[nodiscard]] bool truth(std::span<const std::int64_t> frame) const noexcept {
    std::int64_t number = 0;
    return evaluate(frame, number) && number != 0;
  }
  [[nodiscard]] std::optional<std::int64_t> constant_value() const noexcept {
    return start_ == Start::constant && steps_ == 0 ? std::optional(constant_) : std::nullopt;
  }
  /// A slot times a number under share_limit. Nothing for any other formula.
  struct Multiple {
    std::uint16_t slot;
    std::int64_t times;
  };
  [[nodiscard]] std::optional<Multiple> multiple() const noexcept {
    const bool is_one = shares_below_ != 0 && rounds_up_by_ == 0 && most_ == std::numeric_limits<std::int64_t>::max();
    return is_one ? std::optional(Multiple{slot_, times_}) : std::nullopt;
  }
  /// The slot and the number, for the formula slot % number == 0 of a power of two.
  [[nodiscard]] std::optional<Multiple> divisible() const noexcept;
  /// True for a slot or a product of two that is at least `least` in each frame where it has a value, if slots lie in
  /// these ranges.
  [[nodiscard]] bool is_at_least(std::int64_t least, std::span<const Range> slots) const noexcept;
  /// True when both are the same chain, and so have the same value in every frame. False when one is not a chain.
  [[nodiscard]] bool same_chain(const Formula& other) const noexcept;

 private:
  enum class Start : std::uint8_t { constant, slot, product, expression };
  struct Step {
    Operation operation{};
    bool shifts = false;   // divides by a power of two
    bool by_slot = false;  // multiplies by the slot that is the operand
    std::uint8_t shift = 0;
    std::int64_t operand = 0;
    bool operator==(const Step&) const = default;
  };
  static constexpr std::size_t most_steps = 6;
  static constexpr std::uint64_t share_limit = std::uint64_t{1} << 31;
  struct Tail {
    std::array<Step, most_steps> chain{};
    Expression expression;  // when this is not a chain
  };
  /// Appends the steps from a slot, a product or a number to this node; returns false when they are not a chain.
  bool append(const Node& node, Tail& tail);
  bool append_step(Operation operation, std::int64_t operand, Tail& tail);
  /// Detects a share, min(ceil_div(slot, divisor) * times, most) * scale, and sets its numbers.
  void settle(const Tail& tail) noexcept;
  [[nodiscard]] bool take_share(std::uint64_t slot, std::uint64_t below, std::int64_t& number) const noexcept {
    if (slot >= below) [[unlikely]]
      return false;
    // All operands are under share_limit, so no product overflows.
    const auto shares = static_cast<std::int64_t>(divide(slot + rounds_up_by_));
    number = std::min(shares * times_, most_) * scale_;
    return true;
  }
  /// Divides a 32-bit number by the divisor. The reciprocal is too large by less than 2^-63; the error of the product,
  /// less than 2^-31, is below 1 / divisor, so the quotient's integer part is exact.
  [[nodiscard]] std::uint64_t divide(std::uint64_t number) const noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(Wide{2 * number} * reciprocal_ >> 64);
  }
  /// Out of line, so that callers stay small: most formulas of a launch are shares.
  [[nodiscard]] bool evaluate_steps(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept;
  static bool take(const Step& step, std::span<const std::int64_t> frame, std::int64_t& value) noexcept;

  std::uint64_t reciprocal_ = std::uint64_t{1} << 63;  // 2^63 / divisor, rounded up
  std::int64_t most_ = std::numeric_limits<std::int64_t>::max();
  std::uint32_t rounds_up_by_ = 0;  // divisor - 1
  std::uint32_t times_ = 1, scale_ = 1;
  std::uint32_t shares_below_ = 0;       // share_limit for a share, else 0
  std::uint16_t slot_ = 0, factor_ = 0;  // factor_: the second slot of a product
  Start start_ = Start::constant;
  std::uint8_t steps_ = 0;
  bool share_by_slot_ = false;  // a share times the slot `factor_`
  std::int64_t constant_ = 0;
  std::shared_ptr<const Tail> tail_;  // null for a plain number or slot
};

}  // namespace kiln::manifest
