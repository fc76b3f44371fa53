#include "manifest/expression.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "kiln/error.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

constexpr std::int64_t largest_number = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();

Symbols launch_symbols() {
  Symbols result;
  result.add("rows");
  result.add("cols");
  result.add({"dtype", {"bf16", "f32", "f16"}, {2, 4, 2}});
  result.add({"layout", {"nt", "nn"}, {}});
  return result;
}

Value evaluate(std::string_view text, std::vector<std::int64_t> frame = {10, 3, 1, 0}) {
  return Expression::parse(text, launch_symbols()).evaluate(frame);
}

std::string message_of(std::string_view text) {
  try {
    Expression::parse(text, launch_symbols());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_expression);
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("operators bind and associate as in C") {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"1 + 2 * 3", 7},
      {"(1 + 2) * 3", 9},
      {"10 - 4 - 3", 3},
      {"100 / 10 / 5", 2},
      {"7 % 4 * 2", 6},
      {"-7 / 2", -3},
      {"-7 % 2", -1},
      {"2 * -3", -6},
      {"!0 + 1", 2},
      {"!!5", 1},
      {"--5", 5},
      {"1 < 2 == 1", 1},
      {"(3 > 2) > 1", 0},
      {"1 || 0 && 0", 1},
      {"0 ? 1 : 1 ? 2 : 3", 2},
      {"1 ? 0 ? 4 : 5 : 6", 5},
      {"2 + 3 == 5 && 4", 1},
      {"0 || 7", 1},
      {"1 <= 1 != 0", 1},
      {"rows - cols * 2", 4},
  };
  for (const auto& [each, wanted] : cases) {
    const std::string text = each;
    CAPTURE(text);
    CHECK(evaluate(text).ok());
    CHECK(evaluate(text).number == wanted);
  }
}

TEST_CASE("functions compute what their names say") {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"min(3, 1, 2)", 1},     {"max(3, 1, 7, 2)", 7},  {"ceil_div(rows, cols)", 4}, {"ceil_div(0, 5)", 0},
      {"round_up(10, 8)", 16}, {"round_up(16, 8)", 16}, {"pow2_ceil(0)", 1},         {"pow2_ceil(17)", 32},
      {"log2(1)", 0},          {"log2(1023)", 9},       {"is_pow2(64)", 1},          {"is_pow2(0)", 0},
      {"is_pow2(-64)", 0},     {"abs(-5)", 5},          {"sizeof(dtype)", 4},
  };
  for (const auto& [each, wanted] : cases) {
    const std::string text = each;
    CAPTURE(text);
    CHECK(evaluate(text).ok());
    CHECK(evaluate(text).number == wanted);
  }
}

TEST_CASE("sizeof follows the chosen type") {
  const std::int64_t wanted[] = {2, 4, 2};
  for (std::int64_t index = 0; index < 3; ++index)
    CHECK(evaluate("sizeof(dtype)", {0, 0, index, 0}).number == wanted[index]);
}

TEST_CASE("a quoted word is compared with a type or a choice") {
  CHECK(evaluate("layout == \"nt\"").number == 1);
  CHECK(evaluate("\"nn\" == layout").number == 0);
  CHECK(evaluate("layout != \"nn\" && dtype == \"f32\"").number == 1);
}

TEST_CASE("what 64 bits cannot hold has a status instead of a value") {
  const std::pair<const char*, Status> cases[] = {
      {"rows + 1", Status::overflow},
      {"-cols - 2", Status::ok},
      {"cols - 1", Status::overflow},
      {"rows * 2", Status::overflow},
      {"-cols", Status::overflow},
      {"abs(cols)", Status::overflow},
      {"cols / -1", Status::overflow},
      {"cols % -1", Status::overflow},
      {"rows / 0", Status::division_by_zero},
      {"rows % 0", Status::division_by_zero},
      {"ceil_div(rows, 0)", Status::division_by_zero},
      {"ceil_div(-1, 2)", Status::negative_argument},
      {"round_up(1, -2)", Status::negative_argument},
      {"round_up(rows, 8)", Status::overflow},
      {"pow2_ceil(rows)", Status::overflow},
      {"pow2_ceil(-1)", Status::negative_argument},
      {"log2(0)", Status::negative_argument},
      {"ceil_div(rows, 8)", Status::ok},
  };
  for (const auto& [each, wanted] : cases) {
    const std::string text = each;
    CAPTURE(text);
    const std::string shifted = text == "-cols - 2" ? "-(cols + 1) - 1" : text;
    const Value value = evaluate(shifted, {largest_number, smallest, 0, 0});
    CHECK(to_string(value.status) == to_string(wanted));
    CHECK(value.truth() == (value.ok() && value.number != 0));
  }
}

TEST_CASE("what is not needed is not evaluated") {
  CHECK(evaluate("0 && 1 / 0").number == 0);
  CHECK(evaluate("1 || 1 / 0").number == 1);
  CHECK(evaluate("rows > 0 ? 5 : 1 / 0").number == 5);
  CHECK(evaluate("rows < 0 && 1 / 0").number == 0);
  CHECK(evaluate("rows > 0 && 1 / 0").status == Status::division_by_zero);
}

TEST_CASE("a mistake is named by column, with what was found and what was expected") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "found the end at column 1 of '', expected a number"},
      {"rows +", "found the end at column 7"},
      {"rows cols", "found 'c' at column 6 of 'rows cols', expected an operator or the end"},
      {"(rows", "found the end at column 6 of '(rows', expected ')'"},
      {"rowz * 2", "found the unknown name 'rowz' (did you mean 'rows'?) at column 1"},
      {"minn(1, 2)", "found the unknown function 'minn' (did you mean 'min'?)"},
      {"log2(1, 2)", "log2 with 2 argument(s) at column 1 of 'log2(1, 2)', expected 1"},
      {"max(1)", "expected two or more"},
      {"9223372036854775808", "found the number '9223372036854775808' at column 1"},
      {"layout == \"tt\"", "found the word 'tt'"},
      {"layout == \"nx\"", "expected a value of 'layout': 'nt' or 'nn'"},
      {"rows == \"nt\"", "a quoted word only beside the name of a type or a choice"},
      {"\"nt\" + 1", "a quoted word only on one side of == or !="},
      {"layout == \"nt", "found a quotation mark at column 11"},
      {"sizeof(rows)", "the name of a type inside sizeof()"},
      {"1 ? 2", "expected ':' of the conditional"},
      {"rows & 1", "found '&' at column 6"},
      {"rows = 1", "found '=' at column 6"},
      {"1.5", "found '.' at column 2 of '1.5', expected an integer: there are no fractions"},
      {"rows = 1", "expected '==' to compare"},
      {"rows =< 1", "expected '<='"},
      {"rows => 1", "expected '>='"},
      {"rows & 1", "expected '&&': there are no operators on bits"},
      {"rows | 1", "expected '||': there are no operators on bits"},
      {"rows ^ 2", "expected another operator: there are none on bits, and no powers"},
      {"rows > 1 and cols > 1", "found 'a' at column 10 of 'rows > 1 and cols > 1', expected '&&'"},
      {"rows > 1 or cols > 1", "expected '||'"},
      {"not rows", "found the word 'not' at column 1 of 'not rows', expected '!'"},
      {"rows > 1 ? true : 0", "found the word 'true' at column 12 of 'rows > 1 ? true : 0', expected '1'"},
      {"rows ** 2", "there is no operator '**'"},
      {"rows // 2", "there is no operator '//'"},
      {"rows << 2", "there is no operator '<<'"},
      {"layout == 'nt'", "expected a word in double quotes"},
      {"rows cols", "operators are + - * / % < <= > >= == != && || and ? :"},
      {"rows\n+ \x01", "found '\\x01'"},
  };
  for (const auto& [each, wanted] : cases) {
    const std::string text = each;
    CAPTURE(text);
    const std::string message = message_of(text);
    CAPTURE(message);
    CHECK(contains(message, wanted));
  }
}

TEST_CASE("comparisons in a row, of which C compares the first as 0 or 1, are refused") {
  for (const char* text : {"1 < rows < 4", "rows > cols >= 1", "rows == cols == 1", "rows != cols == 1"}) {
    CAPTURE(text);
    const std::string message = message_of(text);
    CHECK_MESSAGE(contains(message, "found a second comparison, '"), message);
    CHECK_MESSAGE(contains(message, "expected '&&' between two comparisons"), message);
  }
  for (const char* text : {"(1 < rows) < 4", "1 < rows && rows < 4", "rows < 1 == cols < 1", "rows == (cols == 1)"}) {
    CAPTURE(text);
    CHECK_NOTHROW(Expression::parse(text, launch_symbols()));
  }
}

TEST_CASE("text that would need a deep stack is refused when it is parsed") {
  CHECK(contains(message_of(std::string(100000, '(')), "expected at most"));
  CHECK(contains(message_of(std::string(1000, '(')), "deeper nesting"));
  CHECK(contains(message_of(std::string(1000, '-')), "deeper nesting"));
  std::string chain = "rows";
  for (int i = 0; i < 300; ++i) chain += " + rows";
  CHECK(contains(message_of(chain), "expected a shorter expression"));
  std::string right = "rows";
  for (int i = 0; i < 40; ++i) right = "rows - (" + right + ")";
  CHECK(contains(message_of(right), "expected a simpler expression"));
}

TEST_CASE("an expression without names is a constant, and knows its slots otherwise") {
  CHECK(Expression::parse("4 * (2 + 1)", launch_symbols()).constant_value() == 12);
  CHECK(!Expression::parse("rows", launch_symbols()).constant_value());
  CHECK(!Expression::parse("1 / 0", launch_symbols()).constant_value());
  CHECK(Expression().constant_value() == 0);
  CHECK(Expression::constant(7).evaluate({}).number == 7);
  const Expression both = Expression::parse("sizeof(dtype) * rows + rows", launch_symbols());
  CHECK(both.slots() == std::vector<int>{0, 2});
  CHECK(both.uses(0));
  CHECK(!both.uses(1));
}

TEST_CASE("a specialised expression keeps only the names below the first known") {
  const std::vector<std::int64_t> frame = {100, 8, 1, 0};
  const Expression grid =
      Expression::parse("layout == \"nt\" ? ceil_div(rows, cols * sizeof(dtype)) : cols", launch_symbols());
  const Expression launch = grid.specialise(frame, 1);
  CHECK(launch.slots() == std::vector<int>{0});
  CHECK(launch.evaluate(std::vector<std::int64_t>{100}).number == 4);
  CHECK(launch.evaluate(std::vector<std::int64_t>{33}).number == 2);
  CHECK(launch.text() == grid.text());
  CHECK(grid.specialise(frame, 0).constant_value() == 4);
}

TEST_CASE("a renumbered expression reads other slots, with the same text") {
  Symbols symbols;
  for (const char* name : {"a", "b", "c"}) symbols.add(name);
  const Expression before = Expression::parse("a < 2 ? b + 1 : c", symbols);
  const Expression after = before.renumbered(std::vector<int>{4, 0, 2});
  CHECK(after.slots() == std::vector<int>{0, 2, 4});
  CHECK(after.text() == before.text());
  CHECK(after.evaluate(std::vector<std::int64_t>{7, 0, 9, 0, 1}).number == 8);
  CHECK(after.evaluate(std::vector<std::int64_t>{7, 0, 9, 0, 2}).number == 9);
}

TEST_CASE("a name is an identifier of its own and no function") {
  Symbols names;
  names.add("rows");
  for (const char* bad : {"rows", "", "2d", "a-b", "max", "sizeof", "a b"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(names.add(bad), Error);
  }
  CHECK_THROWS_AS(names.add(std::string(1 << 20, 'x')), Error);
  CHECK(names.size() == 1);
  CHECK(names.find("rows") == 0);
  CHECK(!names.find("cols"));
}
