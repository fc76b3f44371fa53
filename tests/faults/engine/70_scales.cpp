// Scales and caps that would make NaN or infinities of every result: 0, less, NaN, infinite.
#include <cmath>
#include <limits>

#include "faults/engine/fixture.hpp"
#include "manifest/catalogue.hpp"

namespace kiln::faults {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// In f32, 1e-46 is 0 and 1e39 is infinite.
constexpr double refused_scales[] = {0.0,  -0.0,     -0.125,    -1e-40,       -1e30,        1e-46,
                                     1e39, infinite, -infinite, not_a_number, -not_a_number};
constexpr double taken_scales[] = {1e-44, 1e-38, 0.125, 1.0, 3e38};

std::string said_of(const Op& op, const Problem& problem, const Arguments& arguments, Stream stream) {
  const Error error = error_of([&] { op.launch(problem, arguments, stream); });
  CHECK(error.kind() == ErrorKind::bad_input);
  return error.what();
}

}  // namespace

TEST_CASE("fault 70: softmax refuses a scale that is not a finite number above 0, and launches nothing") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(e2e::options(folder / "overlay.kiln", MissPolicy::nearest));
  const Op op = engine.op("softmax");
  const Problem problem = op.problem({{"rows", 4}, {"cols", 64}, {"dtype", "f32"}});
  const Floats x(256), y(256);
  x.upload(std::vector<float>(256, 1.0f));
  Arguments arguments = op.arguments({{"x", x.address()}, {"y", y.address()}});
  const Plan plan = op.plan(problem);
  std::int64_t cases = 0;
  for (const double scale : refused_scales) {
    CAPTURE(scale);
    const std::int64_t before = query("launches");
    arguments.set(op.runtime("scale"), scale);
    const std::string said = said_of(op, problem, arguments, machine.stream());
    CHECK_MESSAGE(contains(said, "softmax: run-time value 'scale' is "), said);
    CHECK_MESSAGE(contains(said, ", expected a finite number above 0"), said);
    CHECK_THROWS_AS(plan.launch(problem, arguments, machine.stream()), Error);
    CHECK(query("launches") == before);
    ++cases;
  }
  for (const double scale : taken_scales) {
    arguments.set(op.runtime("scale"), scale);
    CHECK_NOTHROW(op.launch(problem, arguments, machine.stream()));
    machine.synchronize();
    for (const float each : y.download()) CHECK(each == doctest::Approx(1.0 / 64));
    ++cases;
  }
  tally(70, cases, "scales of softmax");
}

TEST_CASE("fault 70: each op that divides by a scale or a cap, or orders by it, says so in its manifest") {
  const manifest::Catalogue ops({});
  std::int64_t cases = 0;
  for (const manifest::Op& op : ops.all()) {
    if (op.name != "softmax" && !op.name.starts_with("attention_")) continue;
    for (const manifest::Runtime& each : op.runtime) {
      if (each.name != "scale" && each.name != "cap") continue;
      CAPTURE(op.name);
      REQUIRE(each.lower);
      CHECK(each.lower->value == 0.0);
      CHECK_FALSE(each.lower->reached);
      CHECK(each.above_when.has_value() == (each.name == "cap"));  // without a cap, any is taken
      ++cases;
    }
  }
  CHECK(cases == 10);
  tally(70, cases, "bounds of scales and caps");
}

TEST_CASE("fault 70: any op may bound a real, in f32 and f64, always or by a condition, and its default too") {
  struct Case {
    const char *declared, *said;
    double value;
  };
  const std::vector<Case> all = {
      {"{ type = \"f32\", above = 0 }", "is 0, expected a finite number above 0", 0},
      {"{ type = \"f32\", above = 1.5 }", "is 1.5, expected a finite number above 1.5", 1.5},
      {"{ type = \"f32\", above = 0, above_when = 'dtype == \"f32\"' }", "is -2, expected", -2},
      {"{ type = \"f32\", above = 0, above_when = 'dtype != \"f32\"' }", "", -2},
      {"{ type = \"f32\", above = 0, default = 1.0 }", "", 2},
  };
  const Machine machine;
  for (const Case& each : all) {
    CAPTURE(std::string(each.declared));
    const TemporaryFolder folder;
    const CopiedOp op(folder);
    op.edit("op.toml", "factor = \"f32\"", std::string("factor = ") + each.declared);
    const Engine engine(op.options(tuned_overlay(folder), MissPolicy::error));
    ScaleCall call(engine, 64, 128);
    call.arguments.set(call.op.runtime("factor"), each.value);
    if (*each.said != '\0')
      CHECK(contains(said_of(call.op, call.problem, call.arguments, machine.stream()), each.said));
    else
      CHECK_NOTHROW(call.op.launch(call.problem, call.arguments, machine.stream()));
  }
  tally(70, static_cast<std::int64_t>(all.size()), "bounds of an op's own");
}

TEST_CASE("values past an upper bound are refused by name, a real and an integer") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  op.edit("op.toml", "factor = \"f32\"", "factor = { type = \"f32\", min = 0, below = 1 }");
  op.edit("op.toml", "min = \"cols\"", "min = \"cols\", below = \"4 * cols\"");
  const Engine engine(op.options(tuned_overlay(folder), MissPolicy::error));
  const Machine machine;
  ScaleCall call(engine, 64, 128);
  const auto said = [&](double factor, std::int64_t stride) {
    call.arguments.set(call.op.runtime("factor"), factor);
    call.arguments.set(call.op.runtime("stride"), stride);
    return said_of(call.op, call.problem, call.arguments, machine.stream());
  };
  CHECK(contains(said(1, 128), "'factor' is 1, expected a finite number at least 0 and below 1"));
  CHECK(contains(said(-0.5, 128), "'factor' is -0.5, expected"));
  CHECK(contains(said(0.5, 512), "'stride' is 512, over its maximum ((4 * cols) - 1)"));
  call.arguments.set(call.op.runtime("factor"), 0.0);
  call.arguments.set(call.op.runtime("stride"), 128);
  CHECK_NOTHROW(call.op.launch(call.problem, call.arguments, machine.stream()));
}

TEST_CASE("fault 70: a bound that no value keeps is refused by file and line") {
  const TemporaryFolder folder;
  std::int64_t cases = 0;
  for (const char* declared :
       {"{ type = \"f32\", above = -1 }", "{ type = \"f32\", above = nan }", "{ type = \"f32\", above = 0.1 }",
        "{ type = \"i32\", min = 0, above = 0 }", "{ type = \"f32\", above_when = 'dtype == \"f32\"' }",
        "{ type = \"f32\", above = 0, default = 0.0 }", "{ type = \"f32\", above = 1, verify = 0.5 }",
        "{ type = \"f32\", above = 0, above_when = 'rows > 1' }"}) {
    CAPTURE(declared);
    const TemporaryFolder own;
    const CopiedOp op(own);
    op.edit("op.toml", "factor = \"f32\"", std::string("factor = ") + declared);
    const Error error = error_of([&] { (void)op.load(); });
    CHECK(error.kind() == ErrorKind::bad_manifest);
    CHECK_MESSAGE(contains(error.what(), "op.toml:"), std::string(error.what()));
    ++cases;
  }
  tally(70, cases, "bounds that no value keeps");
}

TEST_CASE("fault 70: the command refuses such a scale") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  op.edit("op.toml", "factor = \"f32\"", "factor = { type = \"f32\", above = 0 }");
  const std::string run = "kiln run scale rows=64 cols=128 dtype=f32 --no-verify --iterations 1" +
                          op.globals(tuned_overlay(folder)) + "factor=";
  for (const char* scale : {"0", "-0.125", "nan", "inf"})
    CHECK(contains(expect(2, run + scale), ", expected a finite number above 0"));
  tally(70, 4, "commands");
}

}  // namespace kiln::faults
