// Random expressions against an oracle of 128 bits.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/expression.hpp"
#include "manifest/formula.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

__extension__ using Wide = __int128;
using Outcome = std::optional<Wide>;  // nothing: the expression has no value

constexpr int name_count = 4;

struct Operator {
  const char* sign;
  int precedence;
};
constexpr std::array<Operator, 13> operators = {{{"*", 6},
                                                 {"/", 6},
                                                 {"%", 6},
                                                 {"+", 5},
                                                 {"-", 5},
                                                 {"<", 4},
                                                 {"<=", 4},
                                                 {">", 4},
                                                 {">=", 4},
                                                 {"==", 3},
                                                 {"!=", 3},
                                                 {"&&", 2},
                                                 {"||", 1}}};
constexpr std::array<const char*, 8> functions = {"min",       "max",  "ceil_div", "round_up",
                                                  "pow2_ceil", "log2", "is_pow2",  "abs"};

struct Sample {
  enum class Kind { number, name, binary, function, choose, negate, invert } kind = Kind::number;
  std::int64_t number = 0;  // the value, or the index of name, operator or function
  std::vector<Sample> children;
};

std::int64_t random_number(bool negative_too) {
  const auto large = std::numeric_limits<std::int64_t>::max();
  const auto picked = *rc::gen::weightedElement<int>({{6, 0}, {2, 1}, {1, 2}});
  if (picked == 0) return *rc::gen::inRange<std::int64_t>(negative_too ? -20 : 0, 20);
  if (picked == 1) return *rc::gen::inRange<std::int64_t>(0, large);
  const std::int64_t edge =
      *rc::gen::elementOf(std::vector<std::int64_t>{large, std::int64_t{1} << 62, 1, -large - 1, -1});
  return negative_too || edge > 0 ? edge : 0;
}

Sample random_sample(int depth) {
  using Kind = Sample::Kind;
  if (depth == 0 || *rc::gen::inRange(0, 6) == 0) {
    if (*rc::gen::arbitrary<bool>()) return {Kind::name, *rc::gen::inRange(0, name_count), {}};
    return {Kind::number, random_number(false), {}};
  }
  Sample sample;
  sample.kind = *rc::gen::weightedElement<Kind>(
      {{6, Kind::binary}, {3, Kind::function}, {1, Kind::choose}, {1, Kind::negate}, {1, Kind::invert}});
  std::size_t children = 1;
  if (sample.kind == Kind::binary) sample.number = *rc::gen::inRange<int>(0, operators.size()), children = 2;
  if (sample.kind == Kind::function)
    sample.number = *rc::gen::inRange<int>(0, functions.size()), children = sample.number < 4 ? 2 : 1;
  if (sample.kind == Kind::choose) children = 3;
  for (std::size_t i = 0; i < children; ++i) sample.children.push_back(random_sample(depth - 1));
  return sample;
}

// Written with as few parentheses as C needs, so that precedence is tested too. Comparisons in a row need them here.
std::string text_of(const Sample& sample, int least = 0) {
  using Kind = Sample::Kind;
  const auto& parts = sample.children;
  const auto wrap = [&](int precedence, const std::string& text) {
    return precedence < least ? "(" + text + ")" : text;
  };
  switch (sample.kind) {
    case Kind::number: return std::to_string(sample.number);
    case Kind::name: return std::string(1, static_cast<char>('a' + sample.number));
    case Kind::negate: return wrap(7, "-" + text_of(parts[0], 7));
    case Kind::invert: return wrap(7, "!" + text_of(parts[0], 8));
    case Kind::choose: return wrap(0, text_of(parts[0], 1) + " ? " + text_of(parts[1]) + " : " + text_of(parts[2]));
    case Kind::binary: {
      const auto [sign, precedence] = operators[static_cast<std::size_t>(sample.number)];
      const int left = precedence == 3 || precedence == 4 ? precedence + 1 : precedence;
      return wrap(precedence, text_of(parts[0], left) + " " + sign + " " + text_of(parts[1], precedence + 1));
    }
    case Kind::function: {
      std::string text = functions[static_cast<std::size_t>(sample.number)] + std::string("(") + text_of(parts[0]);
      return text + (parts.size() > 1 ? ", " + text_of(parts[1]) : "") + ")";
    }
  }
  return {};
}

Outcome fits(Wide value) {
  const bool held =
      value >= std::numeric_limits<std::int64_t>::min() && value <= std::numeric_limits<std::int64_t>::max();
  return held ? Outcome(value) : std::nullopt;
}

Outcome call(std::size_t function, Wide a, Wide b) {
  switch (function) {
    case 0: return a < b ? a : b;
    case 1: return a > b ? a : b;
    case 2: return b <= 0 || a < 0 ? Outcome() : fits((a + b - 1) / b);
    case 3: return b <= 0 || a < 0 ? Outcome() : fits((a + b - 1) / b * b);
    case 4: {
      Wide power = 1;
      while (power < a) power *= 2;
      return a < 0 ? Outcome() : fits(power);
    }
    case 5: {
      int log = -1;
      for (Wide rest = a; rest > 0; rest /= 2) ++log;
      return a <= 0 ? Outcome() : Outcome(log);
    }
    case 6: return a > 0 && (a & (a - 1)) == 0;
    default: return fits(a < 0 ? -a : a);
  }
}

Outcome combine(const std::string& sign, Wide a, Wide b) {
  if (sign == "*") return fits(a * b);
  if (sign == "/") return b == 0 ? Outcome() : fits(a / b);
  if (sign == "%") return b == 0 || !fits(a / b) ? Outcome() : Outcome(a % b);
  if (sign == "+") return fits(a + b);
  if (sign == "-") return fits(a - b);
  if (sign == "<") return a < b;
  if (sign == "<=") return a <= b;
  if (sign == ">") return a > b;
  if (sign == ">=") return a >= b;
  return sign == "==" ? a == b : a != b;
}

Outcome oracle(const Sample& sample, const std::vector<std::int64_t>& frame) {
  using Kind = Sample::Kind;
  if (sample.kind == Kind::number) return sample.number;
  if (sample.kind == Kind::name) return frame[static_cast<std::size_t>(sample.number)];
  const Outcome first = oracle(sample.children[0], frame);
  if (!first) return std::nullopt;
  if (sample.kind == Kind::negate) return fits(-*first);
  if (sample.kind == Kind::invert) return *first == 0;
  if (sample.kind == Kind::choose) return oracle(sample.children[*first != 0 ? 1 : 2], frame);
  const auto index = static_cast<std::size_t>(sample.number);
  const std::string sign = sample.kind == Kind::binary ? operators[index].sign : "";
  if (sign == "&&" && *first == 0) return 0;
  if (sign == "||" && *first != 0) return 1;
  const Outcome second = sample.children.size() > 1 ? oracle(sample.children[1], frame) : Outcome(0);
  if (!second) return std::nullopt;
  if (sign == "&&" || sign == "||") return *second != 0;
  return sample.kind == Kind::binary ? combine(sign, *first, *second) : call(index, *first, *second);
}

Symbols lettered_symbols() {
  Symbols result;
  for (char name = 'a'; name < 'a' + name_count; ++name) result.add(std::string(1, name));
  return result;
}

std::vector<std::int64_t> random_frame() {
  std::vector<std::int64_t> frame;
  for (int i = 0; i < name_count; ++i) frame.push_back(random_number(true));
  return frame;
}

}  // namespace

TEST_CASE("a random expression evaluates as in arithmetic without limits, or has a status where 64 bits end") {
  CHECK(rc::check([] {
    const Sample sample = random_sample(5);
    const auto frame = random_frame();
    const std::string text = text_of(sample);
    RC_LOG(text);
    const Outcome wanted = oracle(sample, frame);
    const Value got = Expression::parse(text, lettered_symbols()).evaluate(frame);
    RC_ASSERT(got.ok() == wanted.has_value());
    if (wanted) RC_ASSERT(got.number == static_cast<std::int64_t>(*wanted));
  }));
}

TEST_CASE("a specialised expression gives the value and status of the whole one, from fewer slots") {
  CHECK(rc::check([] {
    const auto frame = random_frame();
    const int first_known = *rc::gen::inRange(0, name_count + 1);
    const std::string text = text_of(random_sample(5));
    RC_LOG(text);
    const Expression whole = Expression::parse(text, lettered_symbols());
    const Expression part = whole.specialise(frame, first_known);
    for (const int slot : part.slots()) RC_ASSERT(slot < first_known);
    const Value wanted = whole.evaluate(frame);
    const Value got = part.evaluate(std::span(frame).first(static_cast<std::size_t>(first_known)));
    RC_ASSERT(got.status == wanted.status);
    RC_ASSERT(got.number == wanted.number);
  }));
}

TEST_CASE("an expression folded within ranges gives the value and status of the whole one everywhere in them") {
  int folded = 0;
  const auto one = [&] {
    const std::string text = text_of(random_sample(4));
    RC_LOG(text);
    std::vector<Range> ranges;
    for (int i = 0; i < name_count; ++i) {
      const std::int64_t a = random_number(true), b = random_number(true);
      const auto multiple = *rc::gen::element<std::int64_t>(1, 1, 2, 3, 8, 48);
      ranges.push_back({std::min(a, b) / multiple * multiple, std::max(a, b) / multiple * multiple, multiple});
    }
    const Expression whole = Expression::parse(text, lettered_symbols());
    const Expression part = whole.within(ranges);
    const std::optional<Range> range = whole.range(ranges);
    folded += part.constant_value() && !whole.constant_value() ? 1 : 0;
    for (int i = 0; i < 20; ++i) {
      std::vector<std::int64_t> frame;
      for (const auto& [lowest, highest, multiple] : ranges) {
        const int where = *rc::gen::inRange(0, 4);
        const auto width = static_cast<std::uint64_t>(highest) - static_cast<std::uint64_t>(lowest);
        const auto step = static_cast<std::uint64_t>(multiple);
        const std::uint64_t inside = width == 0 ? 0 : *rc::gen::arbitrary<std::uint64_t>() % width / step * step;
        frame.push_back(where == 0   ? lowest
                        : where == 1 ? highest
                                     : static_cast<std::int64_t>(static_cast<std::uint64_t>(lowest) + inside));
      }
      const Value wanted = whole.evaluate(frame), got = part.evaluate(frame);
      RC_ASSERT(got.status == wanted.status);
      RC_ASSERT(got.number == wanted.number);
      if (!range) continue;
      RC_ASSERT(wanted.ok());
      RC_ASSERT(range->contains(wanted.number));
      RC_ASSERT(wanted.number % range->multiple_of == 0);
    }
  };
  CHECK(rc::check([&] {
    for (int i = 0; i < 5; ++i) one();  // few of a hundred fold at times
  }));
  CHECK(folded > 5);
}

TEST_CASE("a formula gives the value of its expression, or none where that has none") {
  CHECK(rc::check([] {
    const std::string text = text_of(random_sample(*rc::gen::inRange(0, 4)));
    RC_LOG(text);
    const Expression expression = Expression::parse(text, lettered_symbols());
    const Formula formula(expression);
    const std::vector<Formula> parts = Formula::conjuncts(expression);
    for (int i = 0; i < 20; ++i) {
      const auto frame = random_frame();
      const Value wanted = expression.evaluate(frame);
      std::int64_t got = 0;
      RC_ASSERT(formula.evaluate(frame, got) == wanted.ok());
      if (wanted.ok()) RC_ASSERT(got == wanted.number);
      RC_ASSERT(formula.truth(frame) == wanted.truth());
      RC_ASSERT(std::all_of(parts.begin(), parts.end(), [&](const Formula& each) { return each.truth(frame); }) ==
                wanted.truth());
    }
  }));
}

TEST_CASE("a formula of a grid's form gives what the expression gives, whatever the divisor, the limit and the size") {
  CHECK(rc::check([] {
    const auto number = [] {
      const std::int64_t power = std::int64_t{1} << *rc::gen::inRange(0, 34);
      return std::max<std::int64_t>(0, power + *rc::gen::inRange(-3, 4)) * *rc::gen::element(1, 1, 3);
    };
    std::string text = "a";
    if (*rc::gen::arbitrary<bool>()) text = fmt::format("ceil_div({}, {})", text, number());
    for (int i = *rc::gen::inRange(0, 3); i > 0; --i) text += fmt::format(" * {}", number());
    if (*rc::gen::arbitrary<bool>()) {
      text = fmt::format("min({}, {})", text, number());
      for (int i = *rc::gen::inRange(0, 3); i > 0; --i) text += fmt::format(" * {}", number());
    }
    for (int i = *rc::gen::inRange(0, 3); i > 0; --i) text += " * b";
    RC_LOG(text);
    const Expression expression = Expression::parse(text, lettered_symbols());
    const Formula formula(expression);
    for (int i = 0; i < 50; ++i) {
      auto frame = random_frame();
      frame[0] = number() * *rc::gen::element(1, 1, 1, -1);
      const Value wanted = expression.evaluate(frame);
      std::int64_t got = 0;
      RC_ASSERT(formula.evaluate(frame, got) == wanted.ok());
      if (wanted.ok()) RC_ASSERT(got == wanted.number);
    }
  }));
}

TEST_CASE("a constraint over a bucketed size is settled by the bucket where it can be") {
  const Symbols known = lettered_symbols();
  const auto within = [&](const char* text, Range a) {
    const std::vector<Range> ranges = {a, {}, {4096, 4096}, {}};
    return Expression::parse(text, known).within(ranges).constant_value();
  };
  const Range bucket{513, 1024};
  CHECK(within("64 <= max(16, pow2_ceil(a)) || b == 1", bucket) == 1);
  CHECK(within("ceil_div(pow2_ceil(a), 128) * ceil_div(c, 128) <= 8 * 132", bucket) == 1);
  CHECK(within("a > 1024 && b / 0 == 1", bucket) == 0);
  CHECK(within("a <= 1000", bucket) == std::nullopt);
  CHECK(within("b * 2 % 16 == 0", bucket) == std::nullopt);
  CHECK(within("a * b == a * b", bucket) == std::nullopt);  // it may overflow
  CHECK(within("a % 1024 < 1024", bucket) == 1);
}

TEST_CASE("parsing random text gives an expression or an error, never anything else") {
  CHECK(rc::check([](const std::string& noise) {
    try {
      const Expression expression = Expression::parse(noise, lettered_symbols());
      (void)expression.evaluate(random_frame());
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::bad_expression);
    }
  }));
  CHECK(rc::check([] {
    const auto letters = rc::gen::elementOf(std::string("abcd0129()+-*/%<>=!&|?:,\" minsizeof"));
    const std::string near_miss = *rc::gen::container<std::string>(letters);
    try {
      (void)Expression::parse(near_miss, lettered_symbols()).evaluate(random_frame());
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::bad_expression);
    }
  }));
}
