#include "manifest/real_expression.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>

#include "kiln/error.hpp"
#include "manifest/problem.hpp"
#include "manifest_fixture.hpp"

using namespace kiln::manifest;

namespace {

const std::array<std::int64_t, 2> frame = {3, 64};

RealExpression parsed(std::string_view text) {
  Symbols symbols;
  symbols.add("heads");
  symbols.add("dim");
  return RealExpression::parse(text, symbols);
}

std::string refusal(const std::string& text) {
  try {
    parsed(text);
  } catch (const kiln::Error& error) {
    CHECK(error.kind() == kiln::ErrorKind::bad_expression);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a real expression has the value that its operators and their precedence give in f64") {
  struct Case {
    const char* text;
    double value;
  };
  for (const Case& each : {Case{"1 / sqrt(dim)", 0.125}, Case{"2 + 3 * 4 - 6 / 4", 12.5}, Case{"(2 + 3) * -dim", -320},
                           Case{"8 - 4 - 2", 2}, Case{"heads / dim", 0.046875}, Case{"- - .5e1", 5},
                           Case{"sqrt(sqrt(16) * dim) / 1e-3", 16000}, Case{"heads", 3}}) {
    CAPTURE(each.text);
    CHECK(parsed(each.text).evaluate(frame) == each.value);
  }
}

TEST_CASE("a computed value that is not finite is none, and a literal is what it says") {
  for (const char* text : {"1 / (dim - 64)", "sqrt(heads - dim)", "1e308 * 10", "0 / (dim - 64)"})
    CHECK_FALSE(parsed(text).evaluate(frame));
  CHECK(std::isinf(RealExpression::constant(std::numeric_limits<double>::infinity()).evaluate({}).value()));
}

TEST_CASE("a mistake in a real expression is named with its column") {
  CHECK(refusal("1 / sqrt dim") == "found 'd' at column 10 of '1 / sqrt dim', expected '(' after sqrt");
  CHECK(refusal("dim +") == "found the end at column 6 of 'dim +', expected a number, a name, 'sqrt', '-' or '('");
  CHECK(refusal("2 dim") == "found 'd' at column 3 of '2 dim', expected '+', '-', '*', '/' or the end");
  CHECK(refusal("(dim") == "found the end at column 5 of '(dim', expected ')'");
  CHECK(refusal("1e999").find("expected a number that f64 holds") != std::string::npos);
  CHECK(refusal(std::string(100000, '-')).find("expected at most") != std::string::npos);
  CHECK(refusal(std::string(500, '(')).find("deeper nesting") != std::string::npos);
}

TEST_CASE("a real default that has no value at a problem is an error there, not a number") {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, "factor = \"f32\"",
                                "factor = { type = \"f32\", default = \"1 / (cols - 64)\", verify = 0.5 }");
  const Op op = folder.parse();
  CHECK(op.runtime[0].verify_real->evaluate({}) == 0.5);
  const auto frame_at = [&](const char* cols) {
    const std::array<Setting, 2> settings = {{{"rows", "8"}, {"cols", cols}}};
    return frame_of({op, testing::h200()}, make_problem(op, settings));
  };
  CHECK_NOTHROW(frame_at("128"));
  CHECK_THROWS_WITH_AS(frame_at("64"), doctest::Contains("the default '1 / (cols - 64)' of 'factor' has no value at"),
                       kiln::Error);
}
