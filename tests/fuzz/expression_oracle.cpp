#include "expression_oracle.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "support.hpp"

namespace kiln::fuzz {
namespace {

using manifest::Status;
using manifest::Value;
__extension__ using Wide = __int128;

Value failed(Status status) { return {0, status}; }

Value fits(Wide number) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (number < Limits::min() || number > Limits::max()) return failed(Status::overflow);
  return {static_cast<std::int64_t>(number)};
}

Value rounded_up(bool to_multiple, Wide size, Wide step) {
  if (step == 0) return failed(Status::division_by_zero);
  if (size < 0 || step < 0) return failed(Status::negative_argument);
  const Wide count = (size + step - 1) / step;
  return fits(to_multiple ? count * step : count);
}

Value one(std::string_view name, Wide operand) {
  if (name == "-") return fits(-operand);
  if (name == "!") return {operand == 0};
  if (name == "abs") return fits(operand < 0 ? -operand : operand);
  if (name == "is_pow2") return {operand > 0 && (operand & (operand - 1)) == 0};
  Wide power = 1;
  std::int64_t log = 0;
  if (name == "log2") {
    if (operand <= 0) return failed(Status::negative_argument);
    for (; power * 2 <= operand; power *= 2) ++log;
    return {log};
  }
  require(name == "pow2_ceil", "a function of one argument is in the grammar");
  if (operand < 0) return failed(Status::negative_argument);
  while (power < operand) power *= 2;
  return fits(power);
}

Value two(std::string_view name, Wide left, Wide right) {
  if (name == "+") return fits(left + right);
  if (name == "-") return fits(left - right);
  if (name == "*") return fits(left * right);
  if (name == "<") return {left < right};
  if (name == "<=") return {left <= right};
  if (name == ">") return {left > right};
  if (name == ">=") return {left >= right};
  if (name == "==") return {left == right};
  if (name == "!=") return {left != right};
  if (name == "min") return fits(std::min(left, right));
  if (name == "max") return fits(std::max(left, right));
  if (name == "ceil_div" || name == "round_up") return rounded_up(name == "round_up", left, right);
  require(name == "/" || name == "%", "a function of two arguments is in the grammar");
  if (right == 0) return failed(Status::division_by_zero);
  const Value quotient = fits(left / right);
  return name == "/" || !quotient.ok() ? quotient : fits(left % right);
}

// Parts are computed whether or not they count; a failure of one that does not count is dropped with it.
Value combined(std::string_view sign, Value left, Value right) {
  if (!left.ok()) return left;
  if (sign == "&&" && left.number == 0) return {0};
  if (sign == "||" && left.number != 0) return {1};
  if (!right.ok()) return right;
  if (sign == "&&" || sign == "||") return {right.number != 0};
  return two(sign, left.number, right.number);
}

/// A value, and how it was written: as a plain name (slot >= 0) or a quoted word.
struct Operand {
  Operand(Value of, int named = -1) : value(of), slot(named) {}
  Value value;
  int slot;
  std::optional<std::string_view> word = std::nullopt;
};

class Reader {
 public:
  Reader(std::string_view text, const manifest::Symbols& symbols, std::span<const std::int64_t> frame)
      : text_(text), symbols_(symbols), frame_(frame) {
    advance();
  }

  Value whole() {
    const Value value = ternary();
    require(token_.empty(), "an expression ends where its text does");
    return value;
  }

 private:
  static constexpr std::array<std::array<std::string_view, 4>, 6> levels = {
      {{"||"}, {"&&"}, {"==", "!="}, {"<", "<=", ">", ">="}, {"+", "-"}, {"*", "/", "%"}}};

  Value ternary() {
    const Value condition = binary(0).value;
    if (token_ != "?") return condition;
    advance();
    const Value yes = ternary();
    expect(":");
    const Value no = ternary();
    return !condition.ok() ? condition : condition.number != 0 ? yes : no;
  }

  Operand binary(std::size_t level) {
    if (level == levels.size()) return unary();
    Operand left = binary(level + 1);
    while (!token_.empty() && std::ranges::find(levels[level], token_) != levels[level].end()) {
      const std::string_view sign = token_;
      advance();
      Operand right = binary(level + 1);
      resolve(left, right);
      resolve(right, left);
      left = combined(sign, left.value, right.value);
    }
    return left;
  }

  /// A quoted word stands for its index among the words of the name on the other side.
  void resolve(Operand& word, const Operand& name) const {
    if (!word.word) return;
    require(name.slot >= 0, "a quoted word is compared with a name");
    const auto& words = symbols_[name.slot].words;
    const auto found = std::ranges::find(words, *word.word);
    require(found != words.end(), "a quoted word is one of the name's");
    word.value = {found - words.begin()};
  }

  Operand unary() {
    if (token_ != "-" && token_ != "!") return primary();
    const std::string_view sign = token_;
    advance();
    const Value operand = unary().value;
    return operand.ok() ? one(sign, operand.number) : operand;
  }

  Operand primary() {
    const std::string_view token = token_;
    require(!token.empty(), "an expression does not end early");
    advance();
    if (token == "(") {
      const Value inner = ternary();
      expect(")");
      return inner;
    }
    if (token.front() == '"') return quoted(token.substr(1, token.size() - 2));
    if (is_digit(token.front())) return number(token);
    if (token_ == "(") return call(token);
    const auto slot = symbols_.find(token);
    require(slot.has_value(), "a name is known");
    return {{frame_[static_cast<std::size_t>(*slot)]}, *slot};
  }

  static Operand quoted(std::string_view word) {
    Operand operand(Value{});
    operand.word = word;
    return operand;
  }

  static Value number(std::string_view digits) {
    Wide value = 0;
    for (const char digit : digits) {
      value = value * 10 + (digit - '0');
      require(fits(value).ok(), "a number fits 64 bits");
    }
    return fits(value);
  }

  Value call(std::string_view name) {
    expect("(");
    if (name == "sizeof") {
      const auto slot = symbols_.find(token_);
      require(slot.has_value(), "sizeof names a type");
      advance();
      expect(")");
      return {symbols_[*slot].sizes.at(static_cast<std::size_t>(frame_[static_cast<std::size_t>(*slot)]))};
    }
    Value result = ternary();
    bool single = true;
    for (; token_ == ","; single = false) {
      advance();
      const Value next = ternary();
      if (result.ok()) result = next.ok() ? two(name, result.number, next.number) : next;
    }
    expect(")");
    return single && result.ok() ? one(name, result.number) : result;
  }

  void expect(std::string_view token) {
    require(token_ == token, "an expression has the token that must come next");
    advance();
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }

  void advance() {
    while (!text_.empty() && std::string_view(" \t\n\r").find(text_.front()) != std::string_view::npos)
      text_.remove_prefix(1);
    token_ = text_.substr(0, length_of_token());
    text_.remove_prefix(token_.size());
  }

  [[nodiscard]] std::size_t length_of_token() const {
    if (text_.empty()) return 0;
    const auto run = [&](auto belongs) {
      return static_cast<std::size_t>(std::find_if_not(text_.begin(), text_.end(), belongs) - text_.begin());
    };
    if (is_digit(text_.front())) return run(is_digit);
    if (is_word(text_.front())) return run(is_word);
    if (text_.front() == '"') {
      const std::size_t end = text_.find('"', 1);
      require(end != std::string_view::npos, "a quotation mark has a second one");
      return end + 1;
    }
    for (const std::string_view sign : {"||", "&&", "==", "!=", "<=", ">="})
      if (text_.starts_with(sign)) return sign.size();
    return 1;
  }

  std::string_view text_, token_;
  const manifest::Symbols& symbols_;
  std::span<const std::int64_t> frame_;
};

}  // namespace

Value oracle(std::string_view text, const manifest::Symbols& symbols, std::span<const std::int64_t> frame) {
  return Reader(text, symbols, frame).whole();
}

}  // namespace kiln::fuzz
