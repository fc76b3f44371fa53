#include "manifest/real_expression.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "kiln/error.hpp"
#include "manifest/expression.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {

class RealExpression::Parser {
 public:
  Parser(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  std::vector<Step> parse() {
    if (text_.size() > most_characters)
      fail(0, fmt::format("{} characters", text_.size()), fmt::format("at most {}", most_characters));
    sum();
    skip_space();
    if (at_ < text_.size()) fail(at_, here(), "'+', '-', '*', '/' or the end");
    return std::move(program_);
  }

 private:
  static constexpr std::size_t most_characters = 1024;
  static constexpr int most_levels = 64;

  void sum() {
    product();
    while (const char sign = take_one("+-")) {
      product();
      append(sign == '+' ? Operation::add : Operation::subtract);
    }
  }

  void product() {
    unary();
    while (const char sign = take_one("*/")) {
      unary();
      append(sign == '*' ? Operation::multiply : Operation::divide);
    }
  }

  void unary() {
    if (++levels_ > most_levels) fail(at_, "deeper nesting", fmt::format("at most {} levels", most_levels));
    if (take_one("-") != 0) {
      unary();
      append(Operation::negate);
    } else {
      primary();
    }
    --levels_;
  }

  void primary() {
    skip_space();
    const std::size_t begin = at_;
    if (take_one("(") != 0) return inside();
    const bool is_number = at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.');
    if (is_number) return number();
    while (at_ < text_.size() && is_of_name(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty()) fail(begin, here(), "a number, a name, 'sqrt', '-' or '('");
    if (name == "sqrt") {
      if (take_one("(") == 0) fail(at_, here(), "'(' after sqrt");
      inside();
      return append(Operation::root);
    }
    const auto slot = symbols_.find(name);
    if (!slot) fail(begin, fmt::format("the unknown name {}", quote(name)), "an axis of policy 'exact', or sqrt");
    program_.push_back({Operation::slot, 0, *slot});
  }

  void inside() {
    sum();
    if (take_one(")") == 0) fail(at_, here(), "')'");
  }

  void number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail(at_, here(), "a number that f64 holds");
    at_ = static_cast<std::size_t>(end - text_.data());
    program_.push_back({Operation::number, value, 0});
  }

  void append(Operation operation) { program_.push_back({operation, 0, 0}); }

  /// Takes one of these characters and returns it, else 0.
  char take_one(std::string_view signs) {
    skip_space();
    if (at_ == text_.size() || signs.find(text_[at_]) == std::string_view::npos) return 0;
    return text_[at_++];
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_of_name(char c) { return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  [[nodiscard]] std::string here() const { return at_ < text_.size() ? quote(text_.substr(at_, 1)) : "the end"; }
  [[noreturn]] void fail(std::size_t at, std::string_view found, std::string_view expected) const {
    throw Error(ErrorKind::bad_expression,
                fmt::format("found {} at column {} of {}, expected {}", found, at + 1, quote(text_), expected));
  }

  std::string_view text_;
  const Symbols& symbols_;
  std::size_t at_ = 0;
  int levels_ = 0;
  std::vector<Step> program_;
};

RealExpression RealExpression::parse(std::string_view text, const Symbols& symbols) {
  RealExpression result;
  result.text_ = text;
  result.program_ = Parser(text, symbols).parse();
  return result;
}

RealExpression RealExpression::constant(double value) {
  RealExpression result;
  result.text_ = fmt::format("{}", value);
  result.program_ = {{Operation::number, value, 0}};
  return result;
}

std::optional<double> RealExpression::evaluate(std::span<const std::int64_t> frame) const {
  std::vector<double> stack;
  const auto pop = [&] {
    const double value = stack.back();
    stack.pop_back();
    return value;
  };
  for (const Step& step : program_) {
    switch (step.operation) {
      case Operation::number: stack.push_back(step.number); continue;
      case Operation::slot: stack.push_back(static_cast<double>(frame[static_cast<std::size_t>(step.slot)])); continue;
      case Operation::negate: stack.back() = -stack.back(); continue;
      case Operation::root: stack.back() = std::sqrt(stack.back()); continue;
      default: break;
    }
    const double right = pop();
    double& left = stack.back();
    if (step.operation == Operation::add) left += right;
    if (step.operation == Operation::subtract) left -= right;
    if (step.operation == Operation::multiply) left *= right;
    if (step.operation == Operation::divide) left /= right;
  }
  const bool is_literal = program_.size() == 1;  // which may be infinite
  return is_literal || std::isfinite(stack.back()) ? std::optional(stack.back()) : std::nullopt;
}

std::vector<int> RealExpression::slots() const {
  std::vector<int> result;
  for (const Step& step : program_)
    if (step.operation == Operation::slot) result.push_back(step.slot);
  return result;
}

}  // namespace kiln::manifest
