// What was launched is counted for those who tune, without a launch noticing.
#include <fstream>

#include "e2e/command.hpp"

namespace e2e {

using kiln::Engine;

namespace {

/// The launches that `kiln cache stats --json` names for a problem; 0 when it names none.
double launches_of(const std::string& stats, const std::string& problem) {
  const std::string before = R"("problem":")" + problem + R"(","launches":)";
  const std::size_t at = stats.find(before);
  return at == std::string::npos ? 0 : std::atof(stats.c_str() + at + before.size());
}

void launch_rows(const Engine& engine, const Machine& machine, std::int64_t rows, int times) {
  const ScaleCall call(engine, rows, 128);
  for (int i = 0; i < times; ++i) call.op.launch(call.problem, call.arguments, machine.stream());
  machine.synchronize();
}

}  // namespace

TEST_CASE("an engine leaves to the overlay which real problems it launched, in their proportions") {
  const Machine machine;
  const TemporaryFolder folder;
  {
    const Engine engine(options(folder / "overlay.kiln"));
    for (int turn = 0; turn < 100; ++turn) {
      launch_rows(engine, machine, 50, 24);
      launch_rows(engine, machine, 60, 8);
    }
    CHECK(engine.stats().uncounted == 0);
  }
  const std::string stats = expect(0, "kiln --json cache stats" + globals(folder));
  CHECK(launches_of(stats, "rows=50 cols=128 dtype=f32") == doctest::Approx(2400).epsilon(0.1));
  CHECK(launches_of(stats, "rows=60 cols=128 dtype=f32") == doctest::Approx(800).epsilon(0.1));
}

TEST_CASE("an engine's workload names the buckets that it has launched, for kiln coverage to read") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  CHECK(engine.workload().empty());
  for (const std::int64_t rows : {50, 200, 64}) launch_rows(engine, machine, rows, 1);
  CHECK(engine.workload() ==
        "[[workload]]\nop    = \"scale\"\naxes  = { rows = [64, 256], cols = 128 }\ntypes = { dtype = \"f32\" }\n");
  std::ofstream(folder / "w.toml") << engine.workload();
  CHECK(
      contains(expect(0, "kiln --json coverage " + (folder / "w.toml").string() + globals(folder)), R"("buckets":2)"));
}

TEST_CASE("an engine that is told to count no problems leaves none") {
  const Machine machine;
  const TemporaryFolder folder;
  {
    kiln::Options chosen = options(folder / "overlay.kiln");
    chosen.histogram = false;
    const Engine engine(chosen);
    launch_rows(engine, machine, 50, 200);
  }
  CHECK(contains(expect(0, "kiln --json cache stats" + globals(folder)), R"("histogram_rows":0)"));
}

}  // namespace e2e
