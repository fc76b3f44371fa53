// An expression as the hit path evaluates it: flat, without text or tree, at full speed for what manifests mostly say of a launch.
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

/// A number or a slot, then a few operations with numbers: rows, ceil_div(rows, 64), stride * 2 % 16 == 0. What is no such chain is
/// evaluated as the Expression that it was. Of a grid mostly a share is left, a slot over a number, times a number, up to a number,
/// times a number (rows, ceil_div(m, 192) * 32, min(ceil_div(m, 256) * 16, 66) * 2), for which no operation is looked at.
class Formula {
 public:
  Formula() = default;  // 0
  /// Of an expression in its last form: specialised, and `within` what is known of its slots.
  explicit Formula(const Expression& expression);
  /// Formulas that all hold (truth) where the expression holds, and only there: a && b are two.
  static std::vector<Formula> conjuncts(const Expression& expression);

  /// The number that Expression::evaluate gives; false when it has no value. No allocation, no exception. The frame has a slot at least.
  [[nodiscard]] bool evaluate(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
    if (evaluate_share(frame, number)) [[likely]]
      return true;
    std::int64_t stepped = 0;  // not `number`, which then stays in a register
    const bool has_value = evaluate_steps(frame, stepped);
    number = stepped;
    return has_value;
  }
  /// The same where it is a share, of a slot that is not large; else false, though it may have a value. Calls nothing.
  [[nodiscard]] bool evaluate_share(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
    const auto slot = static_cast<std::uint64_t>(frame[slot_]);
    if (slot >= shares_below_) [[unlikely]]
      return false;
    // All are under share_limit, so that nothing overflows.
    const auto shares = static_cast<std::int64_t>(divide(slot + rounds_up_by_));
    number = std::min(shares * times_, most_) * scale_;
    return true;
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
  static constexpr std::size_t most_steps = 6;
  static constexpr std::uint64_t share_limit = std::uint64_t{1} << 31;
  struct Tail {
    std::array<Step, most_steps> chain{};
    Expression expression;  // of what is no chain
  };
  /// Appends what leads from a slot or a number to this node; false when it is no chain.
  bool append(const Node& node, Tail& tail);
  bool append_step(Operation operation, std::int64_t operand, Tail& tail);
  /// Finds out whether it is min(ceil_div(slot, divisor) * times, most) * scale.
  void settle(const Tail& tail) noexcept;
  /// By the divisor, for numbers of 32 bits: the reciprocal is too large by less than 2^-63, of which 2^32 come to less than the
  /// 1 / divisor that a quotient's fraction leaves free.
  [[nodiscard]] std::uint64_t divide(std::uint64_t number) const noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(Wide{2 * number} * reciprocal_ >> 64);
  }
  /// Out of line: most formulas that a launch meets are such shares, and their callers stay small.
  [[nodiscard]] bool evaluate_steps(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept;
  static bool take(const Step& step, std::int64_t& value) noexcept;

  std::uint64_t reciprocal_ = std::uint64_t{1} << 63;  // 2^63 over the divisor, rounded up
  std::int64_t most_ = std::numeric_limits<std::int64_t>::max();
  std::uint32_t rounds_up_by_ = 0;  // divisor - 1
  std::uint32_t times_ = 1, scale_ = 1;
  std::uint32_t shares_below_ = 0;  // a share of slots under this, which is share_limit, or 0 for what is no share
  std::uint16_t slot_ = 0;
  Start start_ = Start::constant;
  std::uint8_t steps_ = 0;
  std::int64_t constant_ = 0;
  std::shared_ptr<const Tail> tail_;  // null for a number or a slot alone
};

}  // namespace kiln::manifest
