// The driver gives device times that are NaN, infinite or negative: they are dropped, and a candidate that has no others is rejected.
#include <cmath>
#include <limits>

#include "answer/portfolio.hpp"
#include "faults/engine/scene.hpp"
#include "faults/engine/verdicts.hpp"
#include "tune/relative_times.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

/// Each `every`-th time is `value`. Returns the tune's record, or nothing where it found none.
std::optional<store::Record> tuned(const Machine& machine, Verdicts& verdicts, const char* value, int every) {
  const Scene scene;
  Options chosen = watched(scene.options(scene.overlay()), verdicts);
  chosen.isolation = Isolation::in_process;
  const Engine engine(chosen);
  const ScaleCall call(engine, 32, 128);
  control("time " + std::string(value) + " " + std::to_string(every));
  std::optional<Origin> origin;
  try {
    origin = call.launch(machine.stream());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::not_tuned);
  }
  control("heal");
  if (!origin) {
    CHECK(call.launch(machine.stream()) == Origin::overlay);  // a later launch tunes
    return std::nullopt;
  }
  CHECK(origin == Origin::overlay);
  return records_of(scene.overlay()).at(0);
}

void check_time(double ns) {
  CHECK(std::isfinite(ns));
  CHECK(ns > 0);
}

}  // namespace

TEST_CASE("fault 91: false times among true ones are dropped, and all candidates are compared") {
  const Machine machine;
  for (const char* value : {"nan", "inf", "-1"})
    for (const int every : {23, 2}) {
      CAPTURE(value);
      CAPTURE(every);
      Verdicts verdicts;
      const auto record = tuned(machine, verdicts, value, every);
      REQUIRE(record.has_value());
      CHECK(verdicts.rejected.empty());
      check_time(record->baseline_ns);
      for (const store::Choice& each : record->choices) check_time(each.cost_ns);
      for (const store::TriedCandidate& each : record->candidates)
        if (each.samples > 0) check_time(each.cost_ns);
    }
  tally(91, 6, "tunes of which some times are false");
}

TEST_CASE("fault 91: candidates without a true time are rejected with the reason") {
  const Machine machine;
  for (const char* value : {"nan", "inf", "-1"}) {
    CAPTURE(value);
    Verdicts verdicts;
    CHECK_FALSE(tuned(machine, verdicts, value, 1).has_value());
    REQUIRE(!verdicts.rejected.empty());
    for (const std::string& each : verdicts.rejected) CHECK_MESSAGE(contains(each, "NaN, infinite or negative"), each);
  }
  tally(91, 3, "tunes all of whose times are false");
}

TEST_CASE("fault 91: a comparison without a time has no relative times") {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto none = [](std::size_t) { return tune::Footprint(); };
  CHECK(tune::relative_times({{0, {nan, nan}}, {1, {nan}}}, none).empty());
  CHECK(tune::relative_times({}, none).empty());
  CHECK(tune::relative_times({{0, {nan}}, {1, {2.0, 3.0}}}, none).size() == 1);
  tally(91, 3, "comparisons");
}
