#include <atomic>
#include <thread>

#include "e2e/gate.hpp"
#include "faults/engine/children.hpp"
#include "faults/engine/fixture.hpp"
#include "faults/sanitizer.hpp"
#include "faults/skip.hpp"
#include "store/layers.hpp"

namespace kiln::faults {
namespace {

bool launch_is_refused(const Op& op, const ScaleCall& call, Stream stream) {
  return is_refused([&] { return op.launch(call.problem, call.arguments, stream); });
}

/// Whether somebody has the right to tune the bucket of this problem of `scale`.
bool is_leased(const fs::path& overlay, const Problem& problem) {
  const manifest::Op op = scale_op();
  const std::string key = manifest::Bucket({op, h200(), Regime::cold_l2}, manifest::bucket_of(op, problem)).key();
  return !store::File::open(overlay, store::Access::read_write)->acquire_lease(key, "another", 1);
}

/// An engine with a tune that stops once a candidate was tried in the worker process, until it is let go.
struct StoppedTune {
  explicit StoppedTune(MissPolicy policy) {
    Options chosen = options(folder / "overlay.kiln", policy);
    chosen.worker = KILN_WORKER_PROGRAM;
    chosen.background_share = 1;
    chosen.on_tune = [this](const TuneEvent& event) {
      if (event.kind != TuneEvent::Kind::candidate || std::exchange(met, true)) return;
      began.open();
      CHECK(go_on.wait());
    };
    engine.emplace(chosen);
    op.emplace(engine->op("scale"));
  }
  /// As the child does with what it inherited.
  bool destroy() {
    op.reset();
    engine.reset();
    return true;
  }
  TemporaryFolder folder;
  Gate began, go_on;
  bool met = false;
  std::optional<Engine> engine;
  std::optional<Op> op;
};

TEST_CASE("fault 54: a child of fork is refused what it launches, whether hot, planned or missed, and ends") {
  if (address_sanitizer) return skip(asan_allocator);
  const Machine machine;
  const TemporaryFolder folder;
  std::optional<Engine> engine(std::in_place, options(tuned_overlay(folder), MissPolicy::tune));
  const ScaleCall hot(*engine, 64, 128), missed(*engine, 16, 128);
  hot.launch(machine.stream());
  const Op& op = hot.op;
  const Plan plan = op.plan(hot.problem);
  const std::vector<Problem> problems = {hot.problem};
  const auto in_child = [&] {
    bool good =
        launch_is_refused(op, hot, machine.stream()) && launch_is_refused(op, missed, machine.stream()) &&
        is_refused([&] { return plan.launch(hot.problem, hot.arguments, machine.stream()); }) &&
        is_refused([&] { return op.plan(hot.problem); }) && is_refused([&] { return op.plan(missed.problem); }) &&
        is_refused([&] { return engine->op("scale"); }) && is_refused([&] { return engine->prepare(op, problems); }) &&
        is_refused([&] { return engine->coverage(op, problems); }) && is_refused([&] { return engine->coverage(); }) &&
        is_refused([&] { return engine->check(machine.stream()); }) && is_refused([&] { return engine->stats(); }) &&
        is_refused([&] { return Engine(options("")); }) && is_refused([&] { return Tuner(*engine).tune({}); });
    std::thread([&] { good = good && launch_is_refused(op, hot, machine.stream()); }).join();
    return good;
  };
  const std::int64_t launches = query("launches");
  CHECK(status_of_child(in_child) == 0);
  CHECK(status_of_child([&] { return status_of_child(in_child) == 0; }) == 0);
  CHECK(query("launches") == launches);
  CHECK(hot.launch(machine.stream()) == Origin::hot);
  CHECK(engine->stats().hot == 1);
  tally(54, 2, "children that launch");
}

TEST_CASE("fault 54: a child leaves alone what its parent tunes in the background, and ends") {
  if (address_sanitizer) return skip(asan_allocator);
  const Machine machine;
  const Engine elsewhere(options("", MissPolicy::nearest));
  const ScaleCall call(elsewhere, 64, 128);  // its tensors
  StoppedTune tune(MissPolicy::background);
  const auto launch = [&] { return tune.op->launch(call.problem, call.arguments, machine.stream()); };
  CHECK(is_fallback(launch()));
  REQUIRE(tune.began.wait());
  CHECK(status_of_child([&] { return launch_is_refused(*tune.op, call, machine.stream()) && tune.destroy(); }) == 0);
  CHECK(status_of_child([&] { return is_refused([&] { return tune.engine->wait_for_tunes(patience); }); }) == 0);
  CHECK(is_leased(tune.folder / "overlay.kiln", call.problem));
  tune.go_on.open();
  REQUIRE(tune.engine->wait_for_tunes(patience));
  CHECK(launch() == Origin::overlay);
  CHECK(tune.engine->stats().tunes == 1);
  CHECK(tune.engine->warnings().empty());
  tally(54, 2, "children of a tune in the background");
}

TEST_CASE("fault 54: a child leaves alone what another thread of its parent tunes for a launch, and ends") {
  if (address_sanitizer) return skip(asan_allocator);
  const Machine machine;
  const Engine elsewhere(options("", MissPolicy::nearest));
  const ScaleCall call(elsewhere, 64, 128);
  StoppedTune tune(MissPolicy::tune);
  Origin origin = Origin::default_;
  std::thread launching([&] {
    driver_call<CUctx_st*>("cuCtxPushCurrent_v2", machine.context());
    origin = tune.op->launch(call.problem, call.arguments, machine.stream());
  });
  REQUIRE(tune.began.wait());
  CHECK(status_of_child([&] { return launch_is_refused(*tune.op, call, machine.stream()) && tune.destroy(); }) == 0);
  CHECK(is_leased(tune.folder / "overlay.kiln", call.problem));
  tune.go_on.open();
  launching.join();
  CHECK(origin == Origin::overlay);
  CHECK(tune.engine->stats().tunes == 1);
  CHECK(tune.engine->warnings().empty());
  tally(54, 2, "children of a tune for a launch");
}

// What the driver and the engine lock is locked, at many a fork, by a thread that the child has not.
TEST_CASE("fault 54: children of a parent whose other threads launch are refused, and end") {
  if (address_sanitizer) return skip(asan_allocator);
  const Machine machine;
  const TemporaryFolder folder;
  std::optional<Engine> engine(std::in_place, options(tuned_overlay(folder), MissPolicy::nearest));
  std::optional<Op> op(engine->op("scale"));
  const Engine elsewhere(options("", MissPolicy::nearest));
  const ScaleCall call(elsewhere, 64, 128);
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      driver_call<CUctx_st*>("cuCtxPushCurrent_v2", machine.context());
      while (!stop) {
        op->launch(call.problem, call.arguments, machine.stream());
        static_cast<void>(engine->stats());
      }
    });
  constexpr int forks = 100;
  int came_through = 0;
  for (int i = 0; i < forks; ++i)
    came_through += status_of_child([&] {
                      const bool good = launch_is_refused(*op, call, machine.stream());
                      op.reset();
                      engine.reset();
                      return good;
                    }) == 0;
  stop = true;
  threads.clear();
  CHECK(came_through == forks);
  tally(54, forks, "children of a parent that launches");
}

TEST_CASE("fault 54: children of a parent that asks a shared store are refused, and end") {
  if (address_sanitizer) return skip(asan_allocator);
  const Machine machine;
  const TemporaryFolder folder;
  fs::create_directory(folder / "shared");
  Options chosen = options("", MissPolicy::error);
  chosen.remote = folder / "shared";
  std::optional<Engine> engine(std::in_place, chosen);
  std::optional<Op> op(engine->op("scale"));
  const Problem problem = op->problem({{"rows", 64}, {"cols", 128}, {"dtype", "f32"}});
  const auto ask = [&] { return op->plan(problem); };
  std::atomic<bool> stop = false;
  std::jthread asking([&] {
    while (!stop) static_cast<void>(error_of(ask));
  });
  constexpr int forks = 30;
  int came_through = 0;
  for (int i = 0; i < forks; ++i)
    came_through += status_of_child([&] {
                      const bool good = is_refused(ask) && is_refused([&] { return Engine(chosen); });
                      op.reset();
                      engine.reset();
                      return good;
                    }) == 0;
  stop = true;
  asking.join();
  CHECK(came_through == forks);
  CHECK(engine->stats().shared_misses > 0);
  CHECK(engine->stats().shared_errors == 0);
  tally(54, forks, "children of a parent that asks a shared store");
}

TEST_CASE("fault 54: a child that a callback of a tune forks ends by an exception, and its parent keeps the lease") {
  if (address_sanitizer) return skip(asan_allocator);
  const Machine machine;
  const TemporaryFolder folder;
  const Engine elsewhere(options("", MissPolicy::nearest));
  const ScaleCall call(elsewhere, 64, 128);
  Options chosen = options(folder / "overlay.kiln");
  chosen.worker = KILN_WORKER_PROGRAM;
  pid_t child = -1;
  int status = -1;
  chosen.on_tune = [&](const TuneEvent& event) {
    if (event.kind != TuneEvent::Kind::candidate || child >= 0) return;
    child = fork();
    if (child == 0) alarm(20);
    if (child == 0) throw std::runtime_error("the child has no use for this");
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(is_leased(folder / "overlay.kiln", call.problem));
  };
  std::optional<Engine> engine(std::in_place, chosen);
  std::optional<Op> op(engine->op("scale"));
  const auto launch = [&] { return op->launch(call.problem, call.arguments, machine.stream()); };
  Origin origin = Origin::default_;
  try {
    origin = launch();
  } catch (const std::runtime_error&) {
    op.reset();
    engine.reset();
    _exit(0);
  }
  CHECK(status == 0);
  CHECK(origin == Origin::overlay);
  CHECK(engine->stats().tunes == 1);
  CHECK(engine->warnings().empty());
  tally(54, 1, "children of callbacks");
}

TEST_CASE("fault 54: processes with static engines, tuners and Ops end, as do their children" * doctest::skip()) {
  const Machine machine;
  static const Engine engine(options("", MissPolicy::background));
  static const Tuner tuner(engine);
  static const Op op = engine.op("scale");
  const ScaleCall call(engine, 64, 128);
  op.launch(call.problem, call.arguments, machine.stream());  // begins the threads
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::exit(launch_is_refused(op, call, machine.stream()) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  tally(54, 1, "children with static engines");
}

TEST_CASE("fault 54: a child exits with its parent's static engine") {
  if (address_sanitizer) return skip(asan_allocator);
  run_child("fault 54: processes with static engines*", "");
}

}  // namespace
}  // namespace kiln::faults
