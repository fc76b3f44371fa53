// What attention needs of the language, through the public face: a TMA view, a computed default, an optional output, rules for choices.
#include <algorithm>
#include <cmath>

#include "e2e/command.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;
using kiln::MissPolicy;
using kiln::Origin;

TEST_CASE("a tune refuses a kernel that is wrong without an optional output, and launches may leave the output out") {
  const Machine machine;
  const TemporaryFolder folder;
  kiln::Options chosen = options(folder / "overlay.kiln");
  std::string verdict;
  chosen.on_tune = [&](const kiln::TuneEvent& event) {
    if (event.kind != kiln::TuneEvent::Kind::candidate || event.implementation != "careless") return;
    verdict = event.verdict;
  };
  const Engine engine(chosen);
  const kiln::Op op = engine.op("head_scale");
  const kiln::Problem problem =
      op.problem({{"tokens", 21}, {"heads", 8}, {"groups", 2}, {"dim", 16}, {"dtype", "f32"}});
  const std::vector<float> values = ramp(21 * 8 * 16);
  const Floats x(values), y(values.size()), squares(21 * 8);
  kiln::Arguments arguments = op.arguments({{"x", x.address()}, {"y", y.address()}, {"squares", squares.address()}});
  const auto is_right = [&] {
    machine.synchronize();
    const std::vector<float> got = y.download();
    return std::ranges::equal(got, values, [](float a, float b) { return a == b * 0.25F; });  // 1 / sqrt(16)
  };
  CHECK(op.launch(problem, arguments, machine.stream()) == Origin::overlay);
  CHECK(verdict == "wrong_result");
  CHECK(op.plan(problem).implementation() == "packed");
  CHECK(is_right());
  double sum = 0;
  for (std::size_t i = 0; i < 16; ++i) sum += std::pow(values[8 * 16 + i] * 0.25, 2);
  CHECK(squares.download()[8] == doctest::Approx(sum));

  y.upload(std::vector<float>(values.size(), NAN));
  arguments.set(op.tensor("squares"), nullptr);
  CHECK(op.launch(problem, arguments, machine.stream()) == Origin::hot);
  CHECK(is_right());
  CHECK(engine.stats().constraint_fallbacks == 0);
}

TEST_CASE("a problem that breaks a rule of its op is refused wherever it is given, and the command shows the rule") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::nearest));
  const kiln::Op op = engine.op("head_scale");
  constexpr std::string_view sentence = "dtype=bf16 order=heads is not allowed: other orders exist in f32 alone";
  const kiln::Error stated = error_of([&] {
    static_cast<void>(
        op.problem({{"tokens", 8}, {"heads", 2}, {"groups", 1}, {"dim", 16}, {"dtype", "bf16"}, {"order", "heads"}}));
  });
  CHECK(stated.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(contains(stated.what(), sentence), std::string(stated.what()));

  kiln::Problem broken =
      op.problem({{"tokens", 8}, {"heads", 2}, {"groups", 1}, {"dim", 16}, {"dtype", "f32"}, {"order", "heads"}});
  broken.selections[0] = 1;  // bf16
  const std::int64_t launched = query("launches");
  const Floats x(8 * 2 * 16), y(8 * 2 * 16);
  const kiln::Arguments arguments = op.arguments({{"x", x.address()}, {"y", y.address()}});
  const kiln::Error refused = error_of([&] { op.launch(broken, arguments, machine.stream()); });
  CHECK(refused.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(contains(refused.what(), sentence), std::string(refused.what()));
  CHECK(query("launches") == launched);
  const kiln::Coverage coverage = engine.prepare(op, {&broken, 1}, machine.stream());
  REQUIRE(coverage.gaps.size() == 1);
  CHECK_MESSAGE(contains(coverage.gaps[0].why, sentence), coverage.gaps[0].why);

  const std::string shown = expect(0, "kiln ops head_scale heads=8 groups=2 dim=16" + own_ops());
  CHECK_MESSAGE(contains(shown, R"(order == "tokens" || dtype == "f32")"), shown);
  CHECK(contains(shown, "other orders exist in f32 alone"));
  const std::string sizes = " tokens=8 heads=2 groups=1 dim=16 order=heads";
  for (const std::string& command : {"kiln ops" + own_ops(), "kiln tune" + globals(folder)}) {
    const Outcome outcome = shell(command + "head_scale" + sizes + " dtype=bf16");
    CHECK(outcome.status != 0);
    CHECK_MESSAGE(contains(outcome.output, sentence), outcome.output);
  }
  expect(0, "kiln tune head_scale" + sizes + " dtype=f32,bf16" + globals(folder));
  const std::string tuned = expect(0, "kiln cache ls" + globals(folder));
  CHECK(contains(tuned, "dtype=f32"));
  CHECK_FALSE(contains(tuned, "dtype=bf16"));
}

}  // namespace e2e
