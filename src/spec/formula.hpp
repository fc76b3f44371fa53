// An expression as the call lane evaluates it: flat, without text or tree, at full speed for what manifests mostly say of a launch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "spec/expression_arithmetic.hpp"

namespace kiln::spec {

/// A number or a slot, then up to three operations with numbers: rows, ceil_div(rows, 64), min(ceil_div(m, 128) * 32, 65535),
/// stride * 2 % 16 == 0. What is no such chain is evaluated as the Expression that it was.
class Formula {
 public:
  Formula() = default;  // 0
  /// Of an expression in its last form: specialised, and `within` what is known of its slots.
  explicit Formula(const Expression& expression);

  /// The number that Expression::evaluate gives; false when it has no value. No allocation, no exception.
  [[nodiscard]] bool evaluate(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept {
    if (start_ == Start::expression) return evaluate_expression(frame, number);
    std::int64_t value = start_ == Start::slot ? frame[slot_] : constant_;
    for (std::size_t i = 0; i < steps_; ++i)
      if (!take(chain_[i], value)) return false;
    number = value;
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
    Operation operation = Operation::constant;
    std::uint8_t shift = 0;  // of a division by a power of two
    bool shifts = false;
    std::int64_t operand = 0;
    bool operator==(const Step&) const = default;
  };
  /// Appends what leads from a slot or a number to this node; false when it is no chain.
  bool append(const Node& node);
  bool append_step(Operation operation, std::int64_t operand);
  [[nodiscard]] bool evaluate_expression(std::span<const std::int64_t> frame, std::int64_t& number) const noexcept;

  static bool take(const Step& step, std::int64_t& value) noexcept {
    if (step.shifts && value >= 0) {  // the processor's division takes longer than all the rest of a formula
      const std::int64_t mask = (std::int64_t{1} << step.shift) - 1;
      switch (step.operation) {
        case Operation::ceil_div: value = (value >> step.shift) + ((value & mask) != 0); return true;
        case Operation::divide: value >>= step.shift; return true;
        default: value &= mask; return true;  // remainder
      }
    }
    const Value result = step.operation <= Operation::absolute ? apply(step.operation, value)
                                                               : apply(step.operation, value, step.operand);
    value = result.number;
    return result.ok();
  }

  Start start_ = Start::constant;
  std::uint8_t steps_ = 0;
  std::uint16_t slot_ = 0;
  std::int64_t constant_ = 0;
  std::array<Step, 3> chain_{};
  std::shared_ptr<const Expression> expression_;
};

}  // namespace kiln::spec
