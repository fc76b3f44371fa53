// kiln::Tuner from a program: buckets ahead of time, stopped in the middle, on two devices, and the file to deploy.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>

#include "e2e/command.hpp"

namespace e2e {

using kiln::Demand;
using kiln::Engine;
using kiln::Origin;
using kiln::Retune;
using kiln::TunedBucket;
using kiln::Tuner;
using kiln::TuneReport;
using kiln::TuneStep;

namespace {

using End = TunedBucket::Outcome;

/// Buckets of `scale` in f32, rows from `low` to `high`.
std::vector<Demand> rows_between(const Tuner& tuner, std::int64_t low, std::int64_t high) {
  const kiln::Op op = tuner.op("scale");
  return tuner.between("scale", op.problem({{"rows", low}, {"cols", 128}, {"dtype", "f32"}}),
                       op.problem({{"rows", high}, {"cols", 128}, {"dtype", "f32"}}));
}

std::int64_t count(const TuneReport& report, End outcome) {
  return std::ranges::count(report.buckets, outcome, &TunedBucket::outcome);
}

}  // namespace

TEST_CASE("a Tuner tunes each bucket of a list and of a range once, tells its progress, and engines find the records") {
  const Machine machine;
  const TemporaryFolder folder;
  const Tuner tuner(options(folder / "overlay.kiln"));
  std::vector<Demand> demands = rows_between(tuner, 20, 100);  // 32, 64, 128
  CHECK(demands.size() == 3);
  const kiln::Op op = tuner.op("scale");
  demands.push_back({"scale", op.problem({{"rows", 50}, {"cols", 100}, {"dtype", "f32"}})});  // of one that is there
  demands.push_back({"scale", op.problem({{"rows", 7}, {"cols", 100}, {"dtype", "f32"}})});
  std::int64_t finished = 0, last = 0;
  const TuneReport report = tuner.tune(demands, {.on_step = [&](const TuneStep& step) {
                                         CHECK(step.buckets == 4);
                                         CHECK(step.number >= last);
                                         last = step.number;
                                         finished += step.event.kind == kiln::TuneEvent::Kind::finished ? 1 : 0;
                                       }});
  CHECK(finished == 4);
  CHECK(last == 4);
  CHECK(report.wanted == 4);
  CHECK_FALSE(report.interrupted);
  REQUIRE(count(report, End::tuned) == 4);
  const TunedBucket& first = report.buckets.front();
  CHECK(first.bucket[op.axis("rows")] == 32);
  CHECK(first.implementation == "tiled");
  CHECK(first.config == "threads=128 vector=4");
  CHECK(first.configs >= 1);
  CHECK(first.cost_ns > 0);
  CHECK(first.baseline_ns > first.cost_ns);
  CHECK(count(tuner.tune(demands), End::found) == 4);
  const Engine engine(options(folder / "overlay.kiln"));
  CHECK(ScaleCall(engine, 100, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 0);
}

TEST_CASE("a Tuner compiles kernels of another form while it tunes several buckets before them") {
  const Machine machine;
  const TemporaryFolder folder;
  std::mutex mutex;
  std::condition_variable told;
  int references = 0;  // one for each type, compiled
  kiln::Options chosen = options(folder / "overlay.kiln");
  chosen.compile_workers = 2;
  chosen.on_log = [&](const kiln::LogEvent& event) {
    const std::lock_guard lock(mutex);
    references += event.kind == kiln::LogEvent::Kind::compile && event.text.starts_with("scale/reference") ? 1 : 0;
    told.notify_all();
  };
  const Tuner tuner(chosen);
  std::vector<Demand> demands = rows_between(tuner, 20, 200);  // four
  demands.push_back({"scale", tuner.op("scale").problem({{"rows", 32}, {"cols", 128}, {"dtype", "bf16"}})});
  bool was_ahead = false;
  tuner.tune(demands, {.on_step = [&](const TuneStep& step) {
               if (step.number != 2 || step.event.kind != kiln::TuneEvent::Kind::begun) return;
               std::unique_lock lock(mutex);
               was_ahead = told.wait_for(lock, std::chrono::seconds(60), [&] { return references == 2; });
             }});
  CHECK(was_ahead);
}

TEST_CASE("what cannot be asked of a Tuner is refused before anything is tuned") {
  const Machine machine;
  const TemporaryFolder folder;
  const Tuner tuner(options(folder / "overlay.kiln"));
  const kiln::Op op = tuner.op("scale");
  const kiln::Problem small = op.problem({{"rows", 1}, {"cols", 64}, {"dtype", "f32"}});
  const kiln::Problem large = op.problem({{"rows", 64}, {"cols", 64}, {"dtype", "f32"}});
  const auto refused = [](const kiln::Error& error, const char* part) {
    CHECK(error.kind() == kiln::ErrorKind::bad_input);
    CHECK_MESSAGE(contains(error.what(), part), error.what());
  };
  refused(error_of([&] { (void)tuner.between("scale", large, small); }), "'rows' is 64 in the lower problem");
  refused(error_of([&] { (void)tuner.between("scail", small, large); }), "there is no op 'scail'");
  kiln::Problem none = large;
  none[op.axis("rows")] = 0;
  const std::array demands{Demand{"scale", large}, Demand{"scale", none}};
  refused(error_of([&] { tuner.tune(demands); }), "rows");
  refused(error_of([&] { tuner.deploy(demands, folder / "deployed.jsonl"); }), ".kiln");
  const std::array good{Demand{"scale", large}};
  refused(error_of([&] { tuner.deploy(good, folder / "none/deployed.kiln"); }),
          "does not exist; make it, or name another");
  refused(error_of([&] { Tuner(options(""), std::array{0, 0}); }), "in memory");
  refused(error_of([&] { Tuner(options(folder / "overlay.kiln"), std::array{0, 0}); }), "named twice");
  CHECK(count(tuner.tune(std::array{Demand{"scale", large}}), End::tuned) == 1);  // nothing was before
}

TEST_CASE(
    "a Tuner that is stopped keeps finished buckets, leaves the one in work as it was, and goes on when asked again") {
  const Machine machine;
  const TemporaryFolder folder;
  const Tuner tuner(options(folder / "overlay.kiln"));
  const std::vector<Demand> demands = rows_between(tuner, 20, 100);
  const auto stop_in = [&](std::int64_t number, Retune retune) {
    std::stop_source stop;
    return tuner.tune(demands,
                      {.retune = retune, .stop = stop.get_token(), .on_step = [&, number](const TuneStep& step) {
                         if (step.number == number && step.event.kind == kiln::TuneEvent::Kind::candidate)
                           stop.request_stop();
                       }});
  };
  const auto listed = [&] { return expect(0, "kiln cache ls --json" + globals(folder)); };
  const TuneReport stopped = stop_in(2, Retune::none);
  CHECK(stopped.interrupted);
  CHECK(stopped.wanted == 3);
  REQUIRE(stopped.buckets.size() == 1);
  CHECK(stopped.buckets[0].outcome == End::tuned);
  const std::string kept = listed();
  CHECK(contains(kept, "rows=pow2:32"));
  CHECK_FALSE(contains(kept, "rows=pow2:64"));
  const TuneReport again = stop_in(1, Retune::all);
  CHECK(again.interrupted);
  CHECK(again.buckets.empty());
  CHECK(listed() == kept);  // the record that was to be tuned again is as it was
  const TuneReport rest = tuner.tune(demands);
  CHECK_FALSE(rest.interrupted);
  CHECK(count(rest, End::found) == 1);
  CHECK(count(rest, End::tuned) == 2);
}

TEST_CASE("two devices of a class share the buckets, each of which is tuned once") {
  const Machine machine;
  control("devices 2");
  {
    const TemporaryFolder folder;
    const Tuner tuner(options(folder / "overlay.kiln"), std::array{0, 1});
    const auto demands = rows_between(tuner, 1, 256);  // nine
    std::set<int> devices;
    const TuneReport report =
        tuner.tune(demands, {.on_step = [&](const TuneStep& step) { devices.insert(step.device); }});
    CHECK(devices == std::set{0, 1});
    CHECK(report.wanted == 9);
    CHECK(count(report, End::tuned) == 9);
    for (std::size_t i = 0; i < report.buckets.size(); ++i)
      CHECK(report.buckets[i].bucket == demands[i].problem);  // in the order of the demands, whoever took them
  }
  control("devices 1");
}

TEST_CASE("a pre-warmed workload needs no compile, and its deployment neither an overlay nor NVRTC") {
  const Machine machine;
  const TemporaryFolder folder;
  const Tuner tuner(options(folder / "overlay.kiln"));
  const auto demands = rows_between(tuner, 40, 60);
  std::int64_t steps = 0;
  const kiln::Prewarmed warmed =
      tuner.prewarm(demands, {.on_compile = [&](const kiln::CompileStep& step) { steps = step.total; }});
  CHECK(count(warmed.tuned, End::tuned) == 1);
  REQUIRE(warmed.deployments.size() == 1);
  CHECK(warmed.deployments[0].missing.empty());
  CHECK(warmed.deployments[0].cubins == steps);
  const kiln::Deployment deployed = tuner.deploy(demands, folder / "deployed.kiln");
  CHECK(deployed.compiled == 0);
  CHECK(deployed.cubins == warmed.deployments[0].cubins);
  CHECK(deployed.image_bytes > 0);
  std::ofstream(folder / "trace") << "scale rows=50 cols=100 dtype=f32\nscale rows=51 cols=99 dtype=f32\n";
  const std::string replayed = expect(0, "KILN_NVRTC_LIBRARY=none kiln replay " + (folder / "trace").string() +
                                             " --policy error --json --base " + (folder / "deployed.kiln").string() +
                                             globals(folder, "none.kiln"));
  CHECK_MESSAGE(contains(replayed, "\"compiles\":0"), replayed);
  const auto more = rows_between(tuner, 40, 100);
  const kiln::Deployment lacking = tuner.deploy(more, folder / "lacking.kiln");
  REQUIRE(lacking.missing.size() == 1);
  CHECK(lacking.missing[0].why == "no record");
  CHECK(contains(lacking.missing[0].bucket, "rows=128"));
}

TEST_CASE("a Tuner compiles what buckets need without tuning them, and says why its overlay keeps nothing") {
  const Machine machine;
  const TemporaryFolder folder;
  const Tuner tuner(options(""));
  const auto demands = rows_between(tuner, 40, 60);
  const auto compiled = tuner.compile(demands);
  REQUIRE(compiled.size() == 1);
  CHECK(compiled[0].compiled > 0);
  REQUIRE(compiled[0].missing.size() == 1);
  CHECK(compiled[0].missing[0].why == "no record");
  CHECK(tuner.compile(demands)[0].compiled == 0);
  CHECK(contains(tuner.not_kept(), "in memory"));
  const Tuner keeping(options(folder / "overlay.kiln"));
  CHECK(keeping.compile(demands)[0].compiled == compiled[0].compiled);
  CHECK(keeping.not_kept().empty());
}

TEST_CASE("a Tuner of an engine replaces the fallback that the engine serves") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(options(folder / "overlay.kiln", kiln::MissPolicy::nearest));
  const ScaleCall call(engine, 64, 128);
  CHECK(is_fallback(call.launch(machine.stream())));
  CHECK(is_fallback(call.launch(machine.stream())));
  const Tuner tuner(engine);
  CHECK(count(tuner.tune(rows_between(tuner, 64, 64)), End::tuned) == 1);
  CHECK_FALSE(is_fallback(call.launch(machine.stream())));
  CHECK(call.launch(machine.stream()) == Origin::hot);
  CHECK(engine.stats().tunes == 1);
}

}  // namespace e2e
