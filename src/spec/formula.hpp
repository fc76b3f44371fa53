// An expression as the call lane evaluates it: flat, without text or tree, at full speed for what manifests mostly say of a launch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "spec/expression.hpp"

namespace kiln::spec {

/// A number or a slot, then up to three operations with numbers: rows, ceil_div(rows, 64), min(ceil_div(m, 128) * 32, 65535),
/// stride * 2 % 16 == 0. What is no such chain is evaluated as the Expression that it was. Of a grid mostly a share is left, a slot over
/// a power of two and times a number (rows, ceil_div(m, 128) * 32), for which no operation is looked at.
class Formula {
 public:
  Formula() = default;  // 0
  /// Of an expression in its last form: specialised, and `within` what is known of its slots.
  explicit Formula(const Expression& expression);
  /// Formulas that all hold (truth) where the expression holds, and only there: a && b are two.
  static std::vector<Formula> conjuncts(const Expression& expression);

  /// The number that Expression::evaluate gives; false when it has no value. No allocation, no exception.
  [[nodiscard]] bool evaluate(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
    if (!is_share_ || frame[slot_] < 0) [[unlikely]] {
      std::int64_t stepped = 0;  // not `number`, which then stays in a register
      const bool has_value = evaluate_steps(frame, stepped);
      number = stepped;
      return has_value;
    }
    // Under 2^63 each: no sum overflows.
    const std::uint64_t last = (std::uint64_t{1} << shift_) - 1;
    const std::uint64_t shares = (static_cast<std::uint64_t>(frame[slot_]) + last) >> shift_;
    return !__builtin_mul_overflow(static_cast<std::int64_t>(shares), times_, &number);
  }
  /// Whether it has a value that is not zero.
  [[nodiscard]] bool truth(std::span<const std::int64_t> frame) const noexcept {
    std::int64_t number = 0;
    return evaluate(frame, number) && number != 0;
  }
  [[nodiscard]] std::optional<std::int64_t> constant_value() const noexcept {
    return start_ == Start::constant && steps_ == 0 ? std::optional(constant_) : std::nullopt;
  }
  /// Whether it is the same chain: it then has the same value whatever the frame. False for what is no chain.
  [[nodiscard]] bool same_chain(const Formula& other) const noexcept;

 private:
  enum class Start : std::uint8_t { constant, slot, expression };
  struct Step {
    Operation operation{};
    bool shifts = false;  // divides by a power of two
    std::uint8_t shift = 0;
    std::int64_t operand = 0;
    bool operator==(const Step&) const = default;
  };
  static constexpr std::size_t most_steps = 3;
  struct Tail {
    std::array<Step, most_steps> chain{};
    Expression expression;  // of what is no chain
  };
  /// Appends what leads from a slot or a number to this node; false when it is no chain.
  bool append(const Node& node, Tail& tail);
  bool append_step(Operation operation, std::int64_t operand, Tail& tail);
  /// Finds out whether it is ceil_div(slot, 2^shift) * times.
  void settle(const Tail& tail) noexcept;
  /// Out of line: most formulas that a launch meets are such shares, and their callers stay small.
  [[nodiscard]] bool evaluate_steps(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept;
  static bool take(const Step& step, std::int64_t& value) noexcept;

  std::int64_t times_ = 1;
  std::uint16_t slot_ = 0;
  std::uint8_t shift_ = 0;
  bool is_share_ = false;
  Start start_ = Start::constant;
  std::uint8_t steps_ = 0;
  std::int64_t constant_ = 0;
  std::shared_ptr<const Tail> tail_;  // null for a number or a slot alone
};

}  // namespace kiln::spec
