// Policy background: a stand-in serves at once, and is replaced while launches go on.
#include <atomic>
#include <thread>

#include "e2e/engine_fixture.hpp"
#include "e2e/gate.hpp"

namespace e2e {

using kiln::Engine;
using kiln::MissPolicy;
using kiln::Origin;
using kiln::TuneEvent;

namespace {

kiln::Options background(const std::filesystem::path& overlay) {
  kiln::Options chosen = options(overlay, MissPolicy::background);
  chosen.worker = std::filesystem::path(KILN_COMMAND).parent_path() / "kiln-worker";
  chosen.background_share = 1;
  return chosen;
}

/// Workers that are begun while it lives compile, and find no device to try candidates on. This process has its own already.
class NoDeviceForWorkers {
 public:
  NoDeviceForWorkers() { setenv("FAKE_CUDA", "devices 0", 1); }
  ~NoDeviceForWorkers() { unsetenv("FAKE_CUDA"); }
  NoDeviceForWorkers(const NoDeviceForWorkers&) = delete;
  NoDeviceForWorkers& operator=(const NoDeviceForWorkers&) = delete;
};

void launch_scale(const ScaleCall& call, const Machine& machine, int times = 1) {
  for (int i = 0; i < times; ++i) call.op.launch(call.problem, call.arguments, machine.stream());
}

}  // namespace

TEST_CASE("a miss is served by a stand-in at once, launches go on while it is tuned, and the winner serves after") {
  const Machine machine;
  const TemporaryFolder folder;
  Gate tuning, launched;
  kiln::Options chosen = background(folder / "overlay.kiln");
  chosen.on_tune = [&](const TuneEvent& event) {
    if (event.kind != TuneEvent::Kind::begun) return;
    tuning.open();
    CHECK(launched.wait());
  };
  const Engine engine(chosen);
  const ScaleCall call(engine, 64, 128);
  CHECK(call.launch(machine.stream()) == Origin::default_);
  REQUIRE(tuning.wait());
  CHECK(engine.stats().waiting == 1);
  const kiln::Plan stand_in = call.op.plan(call.problem);
  for (int i = 0; i < 50; ++i) CHECK(call.launch(machine.stream()) == Origin::default_);
  CHECK_FALSE(engine.wait_for_tunes(std::chrono::milliseconds(1)));
  launched.open();
  REQUIRE(engine.wait_for_tunes(patience));
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(call.launch(machine.stream()) == Origin::hot);
  CHECK(call.op.plan(call.problem).config() == "threads=128 vector=4");
  CHECK(stand_in.launch(call.problem, call.arguments, machine.stream()) == Origin::default_);
  CHECK(engine.stats().tunes == 1);
  CHECK(engine.stats().waiting == 0);
  CHECK(engine.stats().tuning_ns > 0);
  CHECK(engine.warnings().empty());
  const Engine again(options(folder / "overlay.kiln", MissPolicy::error));
  CHECK(ScaleCall(again, 33, 128).launch(machine.stream()) == Origin::overlay);
}

TEST_CASE("threads that launch while their buckets are tuned and swapped always get right results") {
  const Machine machine;
  const Engine engine(background(""));
  std::atomic<bool> over = false;
  std::vector<std::jthread> threads;
  for (std::int64_t rows : {16, 64, 200})
    threads.emplace_back([&, rows] {
      REQUIRE(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", machine.context()) == 0);
      kiln::Stream stream = nullptr;
      REQUIRE(driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &stream, 1U) == 0);
      const ScaleCall call(engine, rows, 128);
      while (!over) call.launch(stream);
      call.launch(stream);  // may be the first of the winner
      CHECK(call.launch(stream) == Origin::hot);
    });
  while (engine.stats().waiting == 0 && engine.stats().tunes == 0) std::this_thread::yield();
  while (engine.stats().tunes < 3) REQUIRE(engine.wait_for_tunes(patience));
  const std::int64_t before = engine.stats().hot;
  while (engine.stats().hot < before + 30) std::this_thread::yield();
  over = true;
}

TEST_CASE("a graph that is captured meanwhile is neither broken by the swap nor keeps it waiting") {
  const Machine machine;
  const Engine engine(background(""));
  const ScaleCall call(engine, 64, 128);
  launch_scale(call, machine);
  REQUIRE(driver_call<kiln::Stream, int>("cuStreamBeginCapture_v2", machine.stream(), 0) == 0);
  launch_scale(call, machine);
  REQUIRE(engine.wait_for_tunes(patience));
  CHECK(call.op.launch(call.problem, call.arguments, machine.stream()) == Origin::overlay);
  CUgraph_st* graph = nullptr;
  CUgraphExec_st* executable = nullptr;
  REQUIRE(driver_call<kiln::Stream, CUgraph_st**>("cuStreamEndCapture", machine.stream(), &graph) == 0);
  REQUIRE(driver_call<CUgraphExec_st**, CUgraph_st*, unsigned long long>("cuGraphInstantiateWithFlags", &executable,
                                                                         graph, 0ULL) == 0);
  call.poison();
  CHECK(driver_call<CUgraphExec_st*, kiln::Stream>("cuGraphLaunch", executable, machine.stream()) == 0);
  call.check();
  driver_call<CUgraphExec_st*>("cuGraphExecDestroy", executable);
  driver_call<CUgraph_st*>("cuGraphDestroy", graph);
}

TEST_CASE("an engine that goes in mid-tune ends it, keeps nothing of it, and leaves the bucket to the next") {
  const Machine machine;
  const TemporaryFolder folder;
  Gate tuning;
  std::atomic<int> finished = 0;
  {
    kiln::Options chosen = background(folder / "overlay.kiln");
    chosen.on_tune = [&](const TuneEvent& event) {
      finished += event.kind == TuneEvent::Kind::finished ? 1 : 0;
      if (event.kind != TuneEvent::Kind::candidate) return;
      tuning.open();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // seven candidates outlast what follows
    };
    const Engine engine(chosen);
    launch_scale(ScaleCall(engine, 64, 128), machine);
    launch_scale(ScaleCall(engine, 256, 128), machine);
    REQUIRE(tuning.wait());
  }
  CHECK(finished == 0);
  const Engine next(background(folder / "overlay.kiln"));
  const ScaleCall call(next, 64, 128);
  CHECK(call.launch(machine.stream()) == Origin::default_);
  REQUIRE(next.wait_for_tunes(patience));
  CHECK(call.launch(machine.stream()) == Origin::overlay);
}

TEST_CASE("two engines of one overlay tune a bucket once, and both are served by it") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine one(background(folder / "overlay.kiln")), other(background(folder / "overlay.kiln"));
  const ScaleCall here(one, 64, 128), there(other, 64, 128);
  launch_scale(here, machine);
  launch_scale(there, machine);
  REQUIRE(one.wait_for_tunes(patience));
  REQUIRE(other.wait_for_tunes(patience));
  CHECK(one.stats().tunes + other.stats().tunes == 1);
  CHECK(here.launch(machine.stream()) == Origin::overlay);
  CHECK(there.launch(machine.stream()) == Origin::overlay);
}

TEST_CASE("what is launched most is tuned first") {
  const Machine machine;
  Gate begun, asked;
  std::vector<std::string> order;
  kiln::Options chosen = background("");
  chosen.on_tune = [&](const TuneEvent& event) {
    if (event.kind != TuneEvent::Kind::begun) return;
    begun.open();
    if (order.empty()) CHECK(asked.wait());
    order.emplace_back(event.bucket);
  };
  const Engine engine(chosen);
  launch_scale(ScaleCall(engine, 8, 128), machine);
  REQUIRE(begun.wait());
  launch_scale(ScaleCall(engine, 64, 128), machine);
  launch_scale(ScaleCall(engine, 32, 128), machine, 300);
  asked.open();
  REQUIRE(engine.wait_for_tunes(patience));
  REQUIRE(order.size() == 3);
  CHECK(contains(order[1], "rows=32 "));
  CHECK(contains(order[2], "rows=64 "));
}

TEST_CASE("a bucket whose tune fails is said once, not tried again, and served by its stand-in") {
  const Machine machine;
  const NoDeviceForWorkers hidden;
  std::atomic<int> told_of_bucket = 0;
  kiln::Options chosen = background("");
  chosen.on_log = [&](const kiln::LogEvent& event) {
    if (event.kind != kiln::LogEvent::Kind::warning) return;
    if (event.op == "scale" && event.bucket == "rows=64 cols=128 dtype=f32") ++told_of_bucket;
  };
  const Engine engine(chosen);
  const ScaleCall call(engine, 64, 128);
  launch_scale(call, machine);
  REQUIRE(engine.wait_for_tunes(patience));
  CHECK(told_of_bucket == 1);
  CHECK(call.launch(machine.stream()) == Origin::default_);
  launch_scale(ScaleCall(engine, 64, 128), machine, 40);
  REQUIRE(engine.wait_for_tunes(patience));
  REQUIRE(engine.warnings().size() == 1);
  CHECK(contains(engine.warnings()[0], "rows=64"));
  launch_scale(ScaleCall(engine, 256, 128), machine);
  REQUIRE(engine.wait_for_tunes(patience));
  CHECK(engine.warnings().size() == 2);
  CHECK(engine.stats().tunes == 0);
}

TEST_CASE("without a worker process nothing is tuned in the background, and that is said once") {
  const Machine machine;
  kiln::Options chosen = background("");
  chosen.isolation = kiln::Isolation::in_process;
  const Engine engine(chosen);
  launch_scale(ScaleCall(engine, 64, 128), machine);
  launch_scale(ScaleCall(engine, 256, 128), machine);
  CHECK(engine.wait_for_tunes(patience));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::default_);
  REQUIRE(engine.warnings().size() == 1);
  CHECK(contains(engine.warnings()[0], "kiln-worker"));
}

TEST_CASE("a share that is none is refused") {
  const Machine machine;
  for (const double share : {0.0, -1.0, 1.5, static_cast<double>(NAN)}) {
    kiln::Options chosen = background("");
    chosen.background_share = share;
    CHECK(error_of([&] { const Engine engine(chosen); }).kind() == kiln::ErrorKind::bad_input);
  }
}

}  // namespace e2e
