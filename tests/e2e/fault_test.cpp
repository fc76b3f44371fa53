// What fails while tuning or loading rejects itself, is told, and takes nothing with it.
#include "e2e/engine_fixture.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;
using kiln::Origin;

namespace {

struct Verdicts {
  std::string winner;
  std::vector<std::string> rejected;  // "config verdict: reason"

  void operator()(const kiln::TuneEvent& event) {
    if (event.kind == kiln::TuneEvent::Kind::finished) winner = event.config;
    if (event.kind == kiln::TuneEvent::Kind::candidate && event.verdict != "ok") {
      rejected.push_back(std::string(event.config) + " " + std::string(event.verdict) + ": " +
                         std::string(event.reason));
    }
  }
};

kiln::Options watched(const std::filesystem::path& overlay, Verdicts& verdicts) {
  kiln::Options chosen = options(overlay);
  chosen.on_tune = [&verdicts](const kiln::TuneEvent& event) { verdicts(event); };
  return chosen;
}

}  // namespace

TEST_CASE("a candidate with a wrong result is rejected, however fast, and the reason is kept") {
  const Machine machine;
  control("kernel wrong scale_tiled<float, 128, 4>");
  Verdicts verdicts;
  const Engine engine(watched("", verdicts));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(verdicts.winner != "threads=128 vector=4");
  REQUIRE(verdicts.rejected.size() == 1);
  CHECK(contains(verdicts.rejected[0], "threads=128 vector=4 wrong_result"));
  CHECK(contains(verdicts.rejected[0], "rows="));
}

TEST_CASE("when every candidate is wrong, the first reason is told and nothing is stored") {
  const Machine machine;
  control("kernel wrong scale_tiled; kernel wrong scale_plain");
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const ScaleCall call(engine, 64, 128);
  const kiln::Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  CHECK((error.kind() == ErrorKind::not_tuned || error.kind() == ErrorKind::wrong_result));
  CHECK(engine.stats().tunes == 0);
  control("heal");
  CHECK(call.launch(machine.stream()) == Origin::overlay);
}

TEST_CASE("a slow candidate does not win") {
  const Machine machine;
  control("kernel slow 20 scale_tiled<float, 128, 4>");
  Verdicts verdicts;
  const Engine engine(watched("", verdicts));
  ScaleCall(engine, 64, 128).launch(machine.stream());
  CHECK(verdicts.rejected.empty());
  CHECK(!verdicts.winner.empty());
  CHECK(verdicts.winner != "threads=128 vector=4");
}

TEST_CASE("a candidate whose module the driver refuses is rejected, and the others compete") {
  const Machine machine;
  control("module CUDA_ERROR_INVALID_IMAGE scale_tiled<float, 128, 4>");
  Verdicts verdicts;
  const Engine engine(watched("", verdicts));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  REQUIRE(verdicts.rejected.size() == 1);
  CHECK(contains(verdicts.rejected[0], "threads=128 vector=4 launch_failed"));
  CHECK(contains(verdicts.rejected[0], "CUDA_ERROR_INVALID_IMAGE"));
}

TEST_CASE("a tune that is asked to stop ends with an error, and a later one begins again") {
  const Machine machine;
  const TemporaryFolder folder;
  bool may_stop = true;
  kiln::Options chosen = options(folder / "overlay.kiln");
  int candidates = 0;
  chosen.on_tune = [&](const kiln::TuneEvent& event) {
    candidates += event.kind == kiln::TuneEvent::Kind::candidate ? 1 : 0;
  };
  chosen.stop_requested = [&] { return may_stop && candidates >= 3; };
  const Engine engine(chosen);
  const ScaleCall call(engine, 64, 128);
  const kiln::Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  CHECK(error.kind() == ErrorKind::interrupted);
  CHECK(contains(error.what(), "after " + std::to_string(candidates) + " of 7 candidates"));
  CHECK(engine.stats().tunes == 0);
  may_stop = false;
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 1);
}

TEST_CASE("a candidate that reads an illegal address is named") {
  const TemporaryFolder folder;
  const Machine machine;
  control("kernel fault scale_tiled<float, 128, 4>");
  const Engine engine(options(folder / "overlay.kiln"));
  const Floats x(64 * 128), y(64 * 128);
  const kiln::Op op = engine.op("scale");
  const kiln::Problem problem = op.problem({{"rows", 64}, {"cols", 128}, {"dtype", "f32"}});
  const kiln::Error error = error_of([&] {
    op.launch(problem, op.arguments({{"x", x.address()}, {"y", y.address()}, {"factor", 2.0}}), machine.stream());
  });
  CHECK(error.kind() == ErrorKind::driver_failed);
  CHECK(contains(error.what(), "threads=128 vector=4"));
}

}  // namespace e2e
