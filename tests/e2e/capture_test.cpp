// What a capture may meet: misses, other threads' work, other streams' captures. None of it ends a capture.
#include <array>
#include <atomic>
#include <thread>

#include "e2e/engine_fixture.hpp"
#include "e2e/gate.hpp"
#include "e2e/graph.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;
using kiln::MissPolicy;
using kiln::Origin;

namespace {

constexpr std::array modes = {Graph::global, Graph::thread_local_, Graph::relaxed};

Origin launch(const ScaleCall& call, kiln::Stream stream) {
  return call.op.launch(call.problem, call.arguments, stream);
}

/// Device memory, code and waits that a thread asked for while it captured, and captures that were lost, since it was made.
class Watch {
 public:
  [[nodiscard]] std::int64_t unsafe() const { return query("unsafe") - unsafe_; }
  [[nodiscard]] std::int64_t broken() const { return query("broken") - broken_; }
  [[nodiscard]] std::int64_t loads() const { return query("calls cuModuleLoadDataEx") - loads_; }

 private:
  std::int64_t unsafe_ = query("unsafe"), broken_ = query("broken"), loads_ = query("calls cuModuleLoadDataEx");
};

/// A context that is current on this thread, and a stream of its own.
class OnThread {
 public:
  explicit OnThread(const Machine& machine, unsigned flags = 1) {
    pushed_ = driver_call<CUctx_st*>("cuCtxPushCurrent_v2", machine.context()) == 0;
    driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &stream, flags);
  }
  ~OnThread() {
    if (pushed_) driver_call<CUctx_st**>("cuCtxPopCurrent_v2", nullptr);
  }
  OnThread(const OnThread&) = delete;
  OnThread& operator=(const OnThread&) = delete;
  kiln::Stream stream = nullptr;

 private:
  bool pushed_ = false;
};

constexpr unsigned blocking = 0;  // in order with the legacy stream

kiln::Options with_worker(MissPolicy policy) {
  kiln::Options chosen = options("", policy);
  chosen.worker = std::filesystem::path(KILN_COMMAND).parent_path() / "kiln-worker";
  chosen.background_share = 1;
  return chosen;
}

}  // namespace

TEST_CASE("under every policy that lets others serve, the nearest loaded plan stands in for what a capture misses") {
  const Machine machine;
  for (const MissPolicy policy : {MissPolicy::tune, MissPolicy::background, MissPolicy::nearest})
    for (const int mode : modes) {
      CAPTURE(static_cast<int>(policy));
      CAPTURE(mode);
      const Engine engine(with_worker(policy));
      const ScaleCall ready(engine, 64, 128), missed(engine, 200, 128);
      ready.launch(machine.stream());
      missed.poison();
      const Watch watch;
      const Graph graph(machine, mode, [&] {
        CHECK(launch(missed, machine.stream()) == Origin::nearest);
        CHECK(launch(missed, machine.stream()) == Origin::nearest);
      });
      CHECK(watch.unsafe() == 0);
      CHECK(engine.stats().nearest >= 2);
      graph.replay();
      missed.check();
    }
}

TEST_CASE("under MissPolicy::error nothing stands in for what a capture misses") {
  const Machine machine;
  const TemporaryFolder folder;
  ScaleCall(Engine(options(folder / "overlay.kiln")), 64, 128).launch(machine.stream());
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::error));
  const ScaleCall ready(engine, 64, 128), missed(engine, 200, 128);
  ready.launch(machine.stream());
  for (const int mode : modes) {
    ready.poison();
    const Watch watch;
    const Graph graph(machine, mode, [&] {
      const kiln::Error error = error_of([&] { launch(missed, machine.stream()); });
      CHECK(error.kind() == ErrorKind::capture);
      CHECK(contains(error.what(), "rows=200"));
      CHECK(contains(error.what(), "Engine::prepare"));
      launch(ready, machine.stream());
    });
    CHECK(watch.unsafe() == 0);
    graph.replay();
    ready.check();
  }
}

TEST_CASE("of two plans that could stand in, the nearer bucket's does") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall far(engine, 8, 128), near(engine, 512, 128), missed(engine, 250, 128);
  launch(far, machine.stream());
  control("kernel wrong scale_tiled");
  CHECK(near.launch(machine.stream()) == Origin::overlay);
  REQUIRE(near.op.plan(near.problem).implementation() == "plain");
  control("heal");
  const std::int64_t before = query("launches scale_plain");
  const Graph graph(machine, Graph::global, [&] { CHECK(launch(missed, machine.stream()) == Origin::nearest); });
  missed.poison();
  graph.replay();
  missed.check();
  CHECK(query("launches scale_plain") == before + 1);
}

TEST_CASE("a plan of other exact sizes or types never stands in") {
  const Machine machine;
  const Engine engine(options("", MissPolicy::nearest));
  const kiln::Op op = engine.op("rms_norm");
  const Floats x(64 * 128), y(64 * 128);
  const kiln::Arguments arguments = op.arguments({{"x", x.address()}, {"weight", x.address()}, {"y", y.address()}});
  op.launch(op.problem({{"rows", 8}, {"cols", 64}, {"dtype", "f32"}}), arguments, machine.stream());
  const Graph graph(machine, Graph::global, [&] {
    for (const auto& [cols, type] : {std::pair(128, "f32"), std::pair(64, "bf16")}) {
      const kiln::Problem problem = op.problem({{"rows", 8}, {"cols", cols}, {"dtype", type}});
      CHECK(error_of([&] { op.launch(problem, arguments, machine.stream()); }).kind() == ErrorKind::capture);
    }
    const kiln::Problem longer = op.problem({{"rows", 60}, {"cols", 64}, {"dtype", "f32"}});
    CHECK(op.launch(longer, arguments, machine.stream()) == Origin::nearest);
  });
}

TEST_CASE("a plan with a workspace stands in for what its bucket covers, on any stream") {
  const Machine machine;
  const OnThread other(machine);
  control("kernel wrong scale_tiled");  // so that the implementation with a workspace wins
  const Engine engine(options(""));
  const ScaleCall ready(engine, 64, 128), smaller(engine, 30, 128), larger(engine, 100, 128);
  static_cast<void>(ready.op.plan(ready.problem, machine.stream()));
  smaller.poison();
  const Graph graph(machine, Graph::global, [&] {
    CHECK(launch(smaller, machine.stream()) == Origin::nearest);
    CHECK(error_of([&] { launch(larger, machine.stream()); }).kind() == ErrorKind::capture);
  });
  graph.replay();
  smaller.check();
  smaller.poison();
  const Graph elsewhere(other.stream, Graph::global, [&] { CHECK(launch(smaller, other.stream) == Origin::nearest); });
  elsewhere.replay();
  smaller.check();
}

TEST_CASE("a plan whose grid the device cannot have at these sizes leaves a capture to the next that can stand in") {
  const Machine machine;
  const Engine engine(options(""));
  const auto deep = [&](std::int64_t rows) { return ScaleCall(engine, rows, 128, 0, "deep_scale"); };
  const ScaleCall far = deep(64), near = deep(1024), missed = deep(2000);
  REQUIRE(far.op.plan(far.problem).implementation() == "flat");
  control("kernel wrong scale_early<float, 128");
  REQUIRE(near.op.plan(near.problem).implementation() == "deep");
  control("heal");
  const Graph graph(machine, Graph::global, [&] { CHECK(launch(missed, machine.stream()) == Origin::nearest); });
  missed.poison();
  graph.replay();
  missed.check();
}

TEST_CASE("what a capture misses is tuned in the background, and serves the next one") {
  const Machine machine;
  const Engine engine(with_worker(MissPolicy::background));
  const ScaleCall ready(engine, 64, 128), missed(engine, 200, 128), other(engine, 3, 128);
  ready.launch(machine.stream());
  const Watch watch;
  const Graph first(machine, Graph::global, [&] {
    CHECK(launch(missed, machine.stream()) == Origin::nearest);
    CHECK(launch(other, machine.stream()) == Origin::nearest);
  });
  CHECK(watch.broken() == 0);
  while (engine.stats().tunes < 3) REQUIRE(engine.wait_for_tunes(patience));
  const Graph second(machine, Graph::global, [&] {
    CHECK(launch(missed, machine.stream()) == Origin::overlay);
    CHECK(launch(other, machine.stream()) == Origin::overlay);
  });
  missed.poison();
  second.replay();
  missed.check();
}

TEST_CASE("for the default stream all can be made ready while a stream in order with it captures") {
  const Machine machine;
  const Engine engine(options("", MissPolicy::nearest));
  const ScaleCall ready(engine, 64, 128), other(engine, 512, 128);
  launch(ready, machine.stream());
  kiln::Stream blocking = nullptr;
  REQUIRE(driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &blocking, 0U) == 0);
  const Watch watch;
  REQUIRE(driver_call<kiln::Stream, int>("cuStreamBeginCapture_v2", blocking, Graph::global) == 0);
  CHECK(engine.prepare(other.op, std::array{other.problem}).total == 1);
  static_cast<void>(other.op.plan(other.problem));
  CUgraph_st* graph = nullptr;
  REQUIRE(driver_call<kiln::Stream, CUgraph_st**>("cuStreamEndCapture", blocking, &graph) == 0);
  driver_call<CUgraph_st*>("cuGraphDestroy", graph);
  driver_call<kiln::Stream>("cuStreamDestroy_v2", blocking);
  CHECK(watch.broken() == 0);
}

TEST_CASE("a capture does not wait for a bucket that another thread is making ready") {
  const Machine machine;
  Gate tuning, captured;
  kiln::Options chosen = options("");
  std::atomic<bool> hold = false;
  chosen.on_tune = [&](const kiln::TuneEvent& event) {
    if (event.kind != kiln::TuneEvent::Kind::begun || !hold) return;
    tuning.open();
    CHECK(captured.wait());
  };
  const Engine engine(chosen);
  const ScaleCall ready(engine, 64, 128), busy(engine, 200, 128), odd(engine, 200, 127);
  launch(ready, machine.stream());
  hold = true;
  std::jthread other([&] {
    const OnThread here(machine);
    launch(busy, here.stream);
  });
  REQUIRE(tuning.wait());
  const Graph graph(machine, Graph::global, [&] {
    CHECK(launch(busy, machine.stream()) == Origin::nearest);
    CHECK(error_of([&] { launch(odd, machine.stream()); }).kind() == ErrorKind::capture);
  });
  captured.open();
  other.join();
  CHECK(engine.stats().tunes == 2);
}

TEST_CASE("while threads tune, load, make and end engines, one captures in a loop, and loses no capture") {
  const Machine machine;
  kiln::Options in_process = options("");
  in_process.isolation = kiln::Isolation::in_process;  // so that candidates run in this very context
  const Engine engine(in_process);
  const ScaleCall ready(engine, 64, 128), missed(engine, 1000, 128);
  std::vector<std::unique_ptr<ScaleCall>> calls;
  for (const std::int64_t rows : {2, 8, 32, 128, 300}) calls.push_back(std::make_unique<ScaleCall>(engine, rows, 128));
  launch(ready, machine.stream());
  std::atomic<int> running = 2, failures = 0;
  const Watch watch;
  const auto guarded = [&](auto work) {
    return std::jthread([&, work] {
      const OnThread here(machine);
      try {
        work(here.stream);
      } catch (const std::exception&) {
        ++failures;
      }
      --running;
    });
  };
  std::jthread tunes = guarded([&](kiln::Stream stream) {
    for (const auto& call : calls) launch(*call, stream);
  });
  std::jthread makes = guarded([&](kiln::Stream stream) {
    for (int i = 0; i < 3; ++i) {
      const Engine brief(options("", MissPolicy::nearest));
      const kiln::Op op = brief.op("scale");
      op.launch(ready.problem, ready.arguments, stream);
      static_cast<void>(op.plan(op.problem({{"rows", 64}, {"cols", 127}, {"dtype", "f32"}}), stream).footprint());
    }
  });
  const OnThread mine(machine, blocking);
  std::int64_t captures = 0;
  while (running > 0 || captures < 10)
    for (const int mode : modes) {
      const std::int64_t before = query("unsafe");
      const Graph graph(mine.stream, mode, [&] {
        launch(ready, mine.stream);
        launch(missed, mine.stream);
      });
      CHECK(query("unsafe") == before);
      ++captures;
    }
  tunes.join();
  makes.join();
  CHECK(failures == 0);
  CHECK(watch.broken() == 0);
  CHECK(engine.stats().tunes == 6);
}

TEST_CASE("a miss on the legacy stream does not end the capture of a stream that is in order with it") {
  const Machine machine;
  const OnThread mine(machine, blocking);
  const Engine engine(options(""));
  const ScaleCall ready(engine, 64, 128), missed(engine, 200, 128);
  launch(ready, mine.stream);
  const Watch watch;
  const Graph graph(mine.stream, Graph::relaxed, [&] {
    launch(ready, mine.stream);
    const kiln::Error error = error_of([&] { launch(missed, nullptr); });
    CHECK(error.kind() == ErrorKind::capture);
    CHECK(contains(error.what(), "legacy"));
  });
  CHECK(watch.broken() == 0);
  CHECK(watch.loads() == 0);
}

TEST_CASE("a capture that was lost before a launch is named as lost") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall call(engine, 64, 128);
  launch(call, machine.stream());
  REQUIRE(driver_call<kiln::Stream, int>("cuStreamBeginCapture_v2", machine.stream(), Graph::global) == 0);
  CHECK(driver_call<kiln::Stream>("cuStreamSynchronize", machine.stream()) != 0);
  const kiln::Error error = error_of([&] { launch(call, machine.stream()); });
  CHECK(error.kind() == ErrorKind::capture);
  CHECK(contains(error.what(), "end it"));
  CUgraph_st* graph = nullptr;
  CHECK(driver_call<kiln::Stream, CUgraph_st**>("cuStreamEndCapture", machine.stream(), &graph) != 0);
  call.launch(machine.stream());
}

TEST_CASE("a graph and launches beside it use one plan in turns, workspace and all") {
  const Machine machine;
  control("kernel wrong scale_tiled");
  const Engine engine(options(""));
  const ScaleCall call(engine, 64, 128), beside(engine, 50, 128);
  static_cast<void>(call.op.plan(call.problem, machine.stream()));
  const Graph graph(machine, Graph::global, [&] { launch(call, machine.stream()); });
  for (int i = 0; i < 5; ++i) {
    call.poison();
    beside.poison();
    graph.replay();
    launch(beside, machine.stream());
    call.check();
    beside.check();
  }
}

}  // namespace e2e
