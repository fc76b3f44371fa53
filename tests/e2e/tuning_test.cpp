// A bucket is tuned once, and never again: not for the next length, not in the next engine.
#include <algorithm>
#include <fstream>

#include "e2e/command.hpp"

namespace e2e {

using kiln::Engine;
using kiln::MissPolicy;
using kiln::Origin;

TEST_CASE("one tune serves every length of its bucket, in this engine and in the next") {
  const Machine machine;
  const TemporaryFolder folder;
  {
    const Engine engine(options(folder / "overlay.kiln"));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::hot);
    CHECK(ScaleCall(engine, 33, 128).launch(machine.stream()) == Origin::hot);
    CHECK(engine.stats().tunes == 1);
    CHECK(engine.stats().hot == 2);
    CHECK(engine.stats().launches() == 3);
  }
  const std::int64_t kernels_before = query("launches scale_tiled");
  const Engine again(options(folder / "overlay.kiln"));
  CHECK(ScaleCall(again, 50, 100).launch(machine.stream()) == Origin::overlay);
  CHECK(ScaleCall(again, 51, 100).launch(machine.stream()) == Origin::hot);
  CHECK(query("launches scale_tiled") == kernels_before + 2);
  CHECK(again.stats().tunes == 0);
  CHECK(again.stats().compiles == 0);
  CHECK(again.warnings().empty());
}

TEST_CASE("the fastest candidate wins, and its record says so") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const ScaleCall call(engine, 256, 256);
  const kiln::Plan plan = call.op.plan(call.problem);
  CHECK(plan.footprint().registers > 0);
  CHECK(plan.footprint().blocks_per_multiprocessor > 0);
  CHECK(plan.implementation() == "tiled");
  CHECK(plan.config() == "threads=128 vector=4");
  CHECK(plan.cost_ns() > 1000);
  CHECK(plan.origin() == Origin::overlay);
  CHECK(plan.launch(call.problem, call.arguments, machine.stream()) == Origin::overlay);
  call.check();
}

TEST_CASE("progress is told: begun, each candidate with its verdict, finished with the winner") {
  const Machine machine;
  std::int64_t begun = 0, candidates = 0, finished = 0;
  kiln::Options chosen = options("");
  chosen.on_tune = [&](const kiln::TuneEvent& event) {
    begun += event.kind == kiln::TuneEvent::Kind::begun ? 1 : 0;
    finished += event.kind == kiln::TuneEvent::Kind::finished ? 1 : 0;
    if (event.kind == kiln::TuneEvent::Kind::finished) CHECK(event.config == "threads=128 vector=4");
    if (event.kind != kiln::TuneEvent::Kind::candidate) return;
    ++candidates;
    CHECK(event.done == candidates);
    CHECK(event.total == 7);
    CHECK(event.verdict == "ok");
    CHECK(event.baseline_ns > 0);
    CHECK(event.best_ns <= event.baseline_ns);
  };
  const Engine engine(chosen);
  ScaleCall(engine, 64, 64).launch(machine.stream());
  CHECK(begun == 1);
  CHECK(candidates == 7);
  CHECK(finished == 1);
}

TEST_CASE("tuning gives back all the device memory that it took") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const ScaleCall call(engine, 64, 128);
  const std::int64_t before = query("memory");
  const std::int64_t handles = query("handles");
  call.launch(machine.stream());
  CHECK(query("memory") == before);
  CHECK(query("handles") == handles + 1);  // the winner's module
}

TEST_CASE("every built-in op is tuned and launched") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const std::vector<float> zeros(64 * 64, 0.0F);
  const Floats x(ramp(64 * 64)), w(ramp(64 * 64)), y(zeros);
  SUBCASE("rms_norm") {
    const kiln::Op op = engine.op("rms_norm");
    const kiln::Problem problem = op.problem({{"rows", 3}, {"cols", 64}, {"dtype", "f32"}});
    CHECK(op.launch(problem,
                    op.arguments({{"x", x.address()}, {"weight", w.address()}, {"y", y.address()}, {"epsilon", 1e-6}}),
                    machine.stream()) == Origin::overlay);
    double squares = 0;
    const std::vector<float> in = ramp(64);
    for (const float each : in) squares += static_cast<double>(each * each);
    CHECK(static_cast<double>(y.download()[5]) ==
          doctest::Approx(static_cast<double>(in[5] * in[5]) / std::sqrt(squares / 64 + 1e-6)));
  }
  SUBCASE("softmax") {
    const kiln::Op op = engine.op("softmax");
    const kiln::Problem problem = op.problem({{"rows", 3}, {"cols", 60}, {"dtype", "f32"}});
    op.launch(problem, op.arguments({{"x", x.address()}, {"y", y.address()}}), machine.stream());
    const std::vector<float> got = y.download();
    for (std::size_t row = 0; row < 3; ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < 60; ++i) sum += static_cast<double>(got[row * 60 + i]);
      CHECK(sum == doctest::Approx(1));
    }
  }
  SUBCASE("gemm") {
    const kiln::Op op = engine.op("gemm");
    const kiln::Problem problem =
        op.problem({{"m", 5}, {"n", 24}, {"k", 40}, {"dtype", "f32"}, {"layout", "nt"}, {"activation", "relu"}});
    const Floats bias(ramp(24));
    op.launch(problem,
              op.arguments({{"x", x.address()}, {"w", w.address()}, {"bias", bias.address()}, {"y", y.address()}}),
              machine.stream());
    const std::vector<float> in = ramp(64 * 64), got = y.download();
    double sum = static_cast<double>(in[7]);
    for (std::size_t i = 0; i < 40; ++i)
      sum += static_cast<double>(in[2 * 40 + i]) * static_cast<double>(in[7 * 40 + i]);
    CHECK(static_cast<double>(got[2 * 24 + 7]) == doctest::Approx(sum > 0 ? sum : 0));
  }
  CHECK(engine.stats().tunes == 1);
}

TEST_CASE("ops of a user's folder are tuned like built-in ones, tensor maps included") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const Floats x(ramp(64 * 64)), y(64 * 64);
  const kiln::Op tiles = engine.op("tile_scale");
  const kiln::Problem problem = tiles.problem({{"rows", 20}, {"cols", 64}, {"dtype", "f32"}});
  const kiln::Arguments arguments = tiles.arguments({{"x", x.address()}, {"y", y.address()}, {"scale", 3.0}});
  CHECK(tiles.launch(problem, arguments, machine.stream()) == Origin::overlay);
  CHECK(tiles.plan(problem).implementation() == "tma");
  CHECK(y.download()[100] == 3 * ramp(101)[100]);
  CHECK(query("launches tile_scale_tma") > 0);
}

TEST_CASE("the winner is launched early where that is faster in a chain, and only where it comes out right") {
  const Machine machine;
  const TemporaryFolder folder;
  const auto tuned_in = [&](const char* state) {
    control(state);
    kiln::Options chosen = options(folder / "overlay.kiln");
    chosen.isolation = kiln::Isolation::in_process;
    std::int64_t told = 0, total = 0;
    chosen.on_tune = [&](const kiln::TuneEvent& event) {
      told += event.kind == kiln::TuneEvent::Kind::candidate ? 1 : 0;
      total = event.total;
    };
    const Engine engine(chosen);
    const kiln::Op op = engine.op("early_scale");
    const kiln::Problem problem = op.problem({{"rows", 64}, {"cols", 64}, {"dtype", "f32"}});
    std::string config(op.plan(problem).config());
    CHECK(told == 2);  // a launch of the winner is no candidate of the search
    CHECK(total == 2);
    return config;
  };
  const auto shown = [&] { return expect(0, "kiln --json cache show early_scale" + globals(folder)); };
  SUBCASE("faster") {
    CHECK(tuned_in("overlap 600") == "threads=128 pdl=1");
    const std::string explained = expect(0, "kiln explain early_scale rows=64 cols=64 dtype=f32" + globals(folder));
    CHECK_MESSAGE(contains(explained, "shared 0 programmatic"), explained);
    const std::string record = shown();
    CHECK_MESSAGE(contains(record, "threads=128 pdl=0"), record);
    CHECK_MESSAGE(contains(record, "of the time of its usual launch"), record);
  }
  SUBCASE("no faster") { CHECK(tuned_in("overlap 0") == "threads=128 pdl=0"); }
  SUBCASE("slower") { CHECK(tuned_in("overlap -300") == "threads=128 pdl=0"); }
  SUBCASE("wrong, for it does not wait for its inputs") {
    CHECK(tuned_in("overlap 600; kernel hasty scale_early") == "threads=128 pdl=0");
    const std::string record = shown();
    CHECK_MESSAGE(contains(record, "launched early behind what writes its inputs"), record);
  }
  SUBCASE("on a device that cannot") {
    CHECK(tuned_in("sm 80") == "threads=128 pdl=0");
    control("sm 90");
  }
  control("heal; overlap 600");
}

TEST_CASE("what is a little faster than the usual winner is found, in this process and in a worker") {
  const TemporaryFolder folder;
  // 1.5 % faster than the usual winner at 128 rows.
  const std::string faster = "kernel slow 0.584 scale_tiled<float, 64, 4>";
  const auto tuned = [&](const std::string& where, const std::string& faults) {
    const std::string said = expect(
        0, where + "FAKE_CUDA='" + faults +
               "' kiln tune scale --force --json rows=128 cols=128 dtype=f32 --strategy exhaustive" + globals(folder));
    return said.substr(std::min(said.find(R"("event":"result")"), said.size()));
  };
  for (const std::string where : {"KILN_WORKER=none ", ""}) {
    CAPTURE(where);
    CHECK(value_of(tuned(where, faster), "config") == "threads=64 vector=4");
    const std::string said = tuned(where, "");
    CHECK(value_of(said, "config") == "threads=128 vector=4");
    // Of all lengths, it is the edge's time that is told: 128 * 128 elements.
    CHECK(std::stod(value_of(said, "cost_ns")) == doctest::Approx(1500 + 2 * 128 * 128 * 4 / 40.0).epsilon(0.02));
  }
}

TEST_CASE("a worker compares the launches of a winner as well") {
  const Machine machine;
  kiln::Options chosen = options("");
  chosen.isolation = kiln::Isolation::worker;
  chosen.worker = std::filesystem::path(KILN_COMMAND).parent_path() / "kiln-worker";
  const Engine engine(chosen);
  const kiln::Op op = engine.op("early_scale");
  CHECK(op.plan(op.problem({{"rows", 64}, {"cols", 64}, {"dtype", "f32"}})).config() == "threads=128 pdl=1");
}

TEST_CASE("without a record, policy error says which bucket is not tuned and launches nothing") {
  const Machine machine;
  const Engine engine(options("", MissPolicy::error));
  const ScaleCall call(engine, 64, 128);
  const kiln::Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  CHECK(error.kind() == kiln::ErrorKind::not_tuned);
  CHECK(contains(error.what(), "scale"));
  CHECK(engine.stats().launches() == 0);
}

TEST_CASE("policy nearest serves another bucket's record, else the default, and names both as stand-ins") {
  const Machine machine;
  const TemporaryFolder folder;
  {
    const Engine engine(options(folder / "overlay.kiln", MissPolicy::nearest));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::default_);
    CHECK(engine.stats().default_ == 1);
    CHECK(engine.stats().tunes == 0);
  }
  {
    const Engine engine(options(folder / "overlay.kiln"));
    ScaleCall(engine, 64, 128).launch(machine.stream());
  }
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::nearest));
  const ScaleCall other(engine, 1024, 128);
  CHECK(other.launch(machine.stream()) == Origin::nearest);
  CHECK(other.launch(machine.stream()) == Origin::nearest);
  CHECK(other.op.plan(other.problem).config() == "threads=128 vector=4");
  CHECK(engine.stats().nearest == 2);
  CHECK(engine.stats().hot == 0);
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
}

TEST_CASE("without a record near, policy nearest launches what the model expects to be fastest, and names it") {
  const Machine machine;
  const TemporaryFolder folder;
  const std::filesystem::path op = folder / "ops" / "scale";
  std::filesystem::create_directories(folder / "ops");
  std::filesystem::copy(std::filesystem::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale", op);
  std::ofstream(op / "tiled.toml", std::ios::app) << "[pass.model]\nbytes_in_flight = \"threads * vector * 4\"\n";
  kiln::Options chosen = options(folder / "overlay.kiln", MissPolicy::nearest);
  chosen.template_paths = {folder / "ops"};
  {
    const Engine engine(chosen);
    const ScaleCall call(engine, 64, 1000);
    CHECK(call.launch(machine.stream()) == Origin::model);
    CHECK(call.launch(machine.stream()) == Origin::model);
    CHECK(call.op.plan(call.problem).config() == "threads=256 vector=4");
    CHECK(engine.explain(call.op, call.problem).origin == Origin::model);
    CHECK(engine.stats().model == 2);
    CHECK(engine.stats().launches() == 2);
    CHECK(engine.stats().tunes == 0);
  }
  const std::string stats = expect(0, "kiln --json cache stats " + (folder / "overlay.kiln").string());
  CHECK_MESSAGE(contains(stats, R"("launches":{"model":2})"), stats);
}

TEST_CASE("an explanation tells the layers, the answer and the launch, and does nothing") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln"));
  const ScaleCall call(engine, 40, 100);
  const std::int64_t launches = query("launches");
  const kiln::Explanation before = engine.explain(call.op, call.problem);
  CHECK(before.origin == Origin::default_);
  CHECK(contains(before.bucket, "rows=64"));
  REQUIRE(before.layers.size() == 1);
  CHECK(before.layers[0].found == "the file does not exist yet");
  CHECK(query("launches") == launches);
  call.launch(machine.stream());
  const kiln::Explanation after = engine.explain(call.op, call.problem);
  CHECK(after.origin == Origin::overlay);
  CHECK(after.config == "threads=128 vector=4");
  CHECK(after.cubin_found);
  REQUIRE(after.passes.size() == 1);
  CHECK(contains(after.passes[0], "grid 40 1 1"));
}

TEST_CASE("an engine leaves to the overlay how often it launched from where, and what it missed") {
  const Machine machine;
  const TemporaryFolder folder;
  for (int time = 0; time < 2; ++time) {
    const Engine engine(options(folder / "overlay.kiln"));
    const ScaleCall call(engine, 64, 128);
    for (int launch = 0; launch < 4; ++launch) call.launch(machine.stream());
  }
  const std::string stats = expect(0, "kiln --json cache stats " + (folder / "overlay.kiln").string());
  CHECK_MESSAGE(contains(stats, R"("launches":{"hot":6,"overlay":2})"), stats);
  CHECK_MESSAGE(contains(stats, R"("misses":{"absent":1})"), stats);
}

}  // namespace e2e
