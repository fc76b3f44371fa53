// The system refuses a thread or a process, once or for a while: those that run do the work, or the caller's own thread, or an error names the limit.
// Later launches work, and nothing waits for a thread that was never begun.
#include <thread>

#include "cuda/gate.hpp"
#include "e2e/gate.hpp"
#include "faults/engine/refusals.hpp"
#include "faults/engine/scene.hpp"
#include "faults/engine/workers.hpp"
#include "plan/histogram.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

using Of = Refusals::Of;
using Which = Refusals::Which;

void check_compiled(const std::shared_future<jit::Cubin>& future) {
  REQUIRE(future.wait_for(patience) == std::future_status::ready);
  CHECK(future.get().image.size() > 0);
}

std::int64_t launches_counted(const fs::path& overlay) {
  std::int64_t launches = 0;
  for (const store::HistogramRow& each : store::File::open(overlay, store::Access::read_only)->histogram())
    launches += each.launches;
  return launches;
}

}  // namespace

TEST_CASE("fault 68: a compile whose thread is refused runs on the caller's, and so does the next of its key") {
  jit::CompilePool pool(2);
  const auto first = compile_of({64, 1});
  {
    const Refusals none(Of::threads, Which::one);
    const auto asked = first.in(pool);
    CHECK(none.count() == 1);
    check_compiled(asked);
  }
  check_compiled(first.in(pool));
  check_compiled(compile_of({64, 4}).in(pool));
  const Refusals further(Of::threads);  // the one that runs does the work
  std::vector<std::shared_future<jit::Cubin>> all;
  for (const manifest::Config& config : {manifest::Config{128, 1}, {128, 4}, {256, 1}, {256, 4}})
    all.push_back(compile_of(config).in(pool));
  for (const auto& each : all) check_compiled(each);
  tally(68, 6, "compiles without a thread of their own");
}

TEST_CASE("fault 68: compiles share the processes that there are, and where there is none the error names the limit") {
  const OwnWorker worker;
  jit::CompilePool pool({.workers = 3, .program = worker.path});
  const auto first = compile_of({64, 1});
  {
    const Refusals none(Of::processes);
    const Error refused = error_of([&] { first.in(pool).get(); });
    CHECK(refused.kind() == ErrorKind::io);
    CHECK_MESSAGE(contains(refused.what(), "RLIMIT_NPROC"), refused.what());
  }
  const Refusals further(Of::processes, Which::each, 1);
  std::vector<std::shared_future<jit::Cubin>> all = {first.in(pool)};
  for (const manifest::Config& config : {manifest::Config{64, 4}, {128, 1}, {128, 4}})
    all.push_back(compile_of(config).in(pool));
  for (const auto& each : all) check_compiled(each);
  CHECK(further.count() >= 1);
  CHECK(processes_of(worker.path).size() == 1);
  tally(68, 5, "compiles without a process of their own");
}

TEST_CASE(
    "fault 68: a file with all machine code serves without a thread, and launches are counted at the engine's end") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  {
    const Refusals none(Of::threads);
    const Engine engine(options(overlay));
    const ScaleCall call(engine, 64, 128);
    CHECK(call.launch(machine.stream()) == Origin::overlay);
    for (int i = 0; i < 64; ++i) call.launch(machine.stream());
    CHECK(none.count() >= 1);
  }
  CHECK(launches_counted(overlay) > 0);
  tally(68, 1, "complete files without a thread");
}

TEST_CASE(
    "fault 68: a tune of which any one thread or every thread is refused finds its record, and later launches work") {
  const Machine machine;
  std::int64_t cases = 0;
  const auto tune = [&](const Refusals& refusals, bool in_worker) {
    const Scene scene;
    const Options chosen = in_worker ? with_worker(scene.options(scene.overlay())) : scene.options(scene.overlay());
    const Engine engine(chosen);
    const ScaleCall call(engine, 32, 128);
    CHECK(call.launch(machine.stream()) == Origin::overlay);
    CHECK(call.launch(machine.stream()) == Origin::hot);
    ++cases;
    return refusals.count();
  };
  CHECK(tune(Refusals(Of::threads), false) > 3);
  CHECK(tune(Refusals(Of::threads), true) > 3);
  for (int thread = 0; thread < 6; ++thread) tune(Refusals(Of::threads, Which::one, thread), false);
  tally(68, cases, "tunes without a thread");
}

TEST_CASE("fault 68: a tune whose worker cannot be begun says why, and the next launch tunes") {
  const Machine machine;
  const Scene scene;
  Options chosen = with_worker(scene.options(scene.overlay()));
  chosen.isolation = Isolation::worker;
  const Engine engine(chosen);
  const ScaleCall call(engine, 32, 128);
  {
    const Refusals none(Of::processes);
    const Error refused = error_of([&] { call.launch(machine.stream()); });
    CHECK_MESSAGE(contains(refused.what(), "RLIMIT_NPROC"), refused.what());
  }
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  tally(68, 1, "tunes without a worker");
}

TEST_CASE("fault 68: without a thread a fallback serves, and what waits is tuned once there is one") {
  const Machine machine;
  const Scene scene;
  const Engine engine(with_worker(scene.options(scene.overlay()), MissPolicy::background));
  const ScaleCall call(engine, 32, 128);
  {
    const Refusals none(Of::threads);
    CHECK(is_fallback(call.launch(machine.stream())));
    CHECK_FALSE(engine.wait_for_tunes(std::chrono::milliseconds(60)));
    const auto warnings = engine.warnings();
    REQUIRE(warnings.size() == 1);
    CHECK_MESSAGE(contains(warnings.front(), "RLIMIT_NPROC"), warnings.front());
  }
  REQUIRE(engine.wait_for_tunes(patience));
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  tally(68, 1, "tunes in the background without a thread");
}

TEST_CASE("fault 68: an engine that is released in a callback of its background thread needs no other thread to end") {
  const Machine machine;
  const Scene scene;
  const std::int64_t contexts = query("contexts"), handles = query("handles");
  Options chosen = with_worker(scene.options(scene.overlay()), MissPolicy::background);
  std::optional<Engine> engine;
  std::promise<void> ready, released;
  chosen.on_tune = [&, may_go = ready.get_future().share()](const TuneEvent&) {
    if (!engine) return;
    may_go.wait();
    const Refusals none(Of::threads);
    engine.reset();
    released.set_value();
  };
  engine.emplace(chosen);
  ScaleCall(*engine, 32, 128).launch(machine.stream());
  ready.set_value();
  REQUIRE(released.get_future().wait_for(patience) == std::future_status::ready);
  for (int tries = 0; tries < 3000 && query("contexts") + query("handles") > contexts + handles; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(query("handles") == handles);
  tally(68, 1, "engines that end without a further thread");
}

TEST_CASE("fault 68: a Tuner whose second device gets no thread tunes all on one") {
  const Machine machine;
  const Scene scene;
  control("devices 2");
  {
    const std::vector<int> both = {0, 1};
    const Tuner tuner(scene.options(scene.overlay()), both);
    const Op op = tuner.op("scale");
    const Refusals none(Of::threads);
    const TuneReport report =
        tuner.tune(tuner.between("scale", op.problem({{"rows", 16}, {"cols", 128}, {"dtype", "f32"}}),
                                 op.problem({{"rows", 32}, {"cols", 128}, {"dtype", "f32"}})));
    CHECK(report.buckets.size() == 2);
    for (const TunedBucket& each : report.buckets) CHECK(each.outcome == TunedBucket::Outcome::tuned);
  }
  control("devices 1");
  tally(68, 1, "Tuners without a thread a device");
}

TEST_CASE("fault 68: a gate whose thread is refused stays open, so that what waits for the stream returns") {
  const Machine machine;
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const cuda::Stream stream;
  cuda::Gate gate;
  const Refusals none(Of::threads, Which::one);
  CHECK_FALSE(gate.hold(stream.handle(), [&] { stream.synchronize(); }));
  CHECK(gate.hold(stream.handle(), [] {}));
  tally(68, 1, "gates without a thread");
}

TEST_CASE("fault 68: a mapping that is refused is an error that names the limit") {
  const Error refused = error_of([] { plan::ZeroedArray<plan::Histogram::Row>(std::size_t{1} << 52); });
  CHECK(refused.kind() == ErrorKind::out_of_memory);
  CHECK_MESSAGE(contains(refused.what(), "vm.max_map_count"), refused.what());
  tally(68, 1, "mappings");
}
