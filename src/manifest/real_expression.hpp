// Real-valued expressions of manifests: a default such as "1 / sqrt(head_dim)".
//
//   sum     := product (('+'|'-') product)*
//   product := unary (('*'|'/') unary)*
//   unary   := '-' unary | primary
//   primary := number | name | 'sqrt' '(' sum ')' | '(' sum ')'
//
// Computed in f64. A name is an axis of policy `exact`, so that the value is known when a plan is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::manifest {

class Symbols;

class RealExpression {
 public:
  /// Parses and resolves. Throws Error(bad_expression) naming the column, what was found and what was expected.
  static RealExpression parse(std::string_view text, const Symbols& symbols);
  static RealExpression constant(double value);

  /// Returns the value over a frame that holds every slot used, or nothing when it is not finite. A literal may be.
  [[nodiscard]] std::optional<double> evaluate(std::span<const std::int64_t> frame) const;
  [[nodiscard]] std::vector<int> slots() const;
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  enum class Operation : std::uint8_t { number, slot, add, subtract, multiply, divide, negate, root };
  /// A step of a program in postfix order.
  struct Step {
    Operation operation{};
    double number = 0;
    int slot = 0;
  };
  class Parser;

  std::string text_;
  std::vector<Step> program_;
};

}  // namespace kiln::manifest
