// A device without memory left: the problem is named, nothing of the tune's stays, the caller's own stands.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

namespace {

std::vector<Demand> demand_of(const ScaleCall& call) { return {{"scale", call.problem}}; }

}  // namespace

TEST_CASE("fault 37: a launch under tune that lacks device memory for its tune is served meanwhile, with a warning") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(e2e::options(folder / "overlay.kiln"));
  const std::vector<float> mine = ramp(4096);
  const Floats callers(mine);
  const ScaleCall call(engine, 1024, 1024);
  const std::int64_t before = query("memory"), allocations = query("allocations");
  control("memory " + std::to_string(before + (std::int64_t{1} << 20)));
  CHECK(is_fallback(call.launch(machine.stream())));
  REQUIRE(engine.warnings().size() == 1);
  const std::string warning = engine.warnings().front();
  CHECK_MESSAGE(contains(warning, "rows=1024 cols=1024"), warning);
  CHECK_MESSAGE(contains(warning, "is served by a fallback: tuning scale"), warning);
  CHECK(query("memory") == before);
  CHECK(query("allocations") == allocations);
  CHECK(callers.download() == mine);
  CHECK(engine.stats().tunes == 0);
  CHECK(is_fallback(call.launch(machine.stream())));  // hot
  const Tuner tuner(engine);
  CHECK(tuner.tune(demand_of(call)).buckets.at(0).outcome == TunedBucket::Outcome::failed);
  control("memory 150323855360");
  CHECK(tuner.tune(demand_of(call)).buckets.at(0).outcome == TunedBucket::Outcome::tuned);
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 1);
  CHECK(callers.download() == mine);
  tally(37, 2, "tunes on a device too small for the problem");
}

TEST_CASE(
    "fault 37: any allocation of a tune may fail: the bucket is told, memory is given back, the next try succeeds") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(e2e::options(folder / "overlay.kiln"));
  const ScaleCall call(engine, 64, 128);
  const Tuner tuner(engine);
  const std::int64_t before = query("memory"), handles = query("handles");
  std::int64_t failures = 0;
  for (int nth = 1; nth < 40; ++nth) {
    control("heal; fail cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY at " + std::to_string(nth));
    const TunedBucket tuned = tuner.tune(demand_of(call)).buckets.at(0);
    if (tuned.outcome == TunedBucket::Outcome::tuned) break;
    CHECK_MESSAGE(contains(tuned.reason, "rows=64 cols=128"), tuned.reason);
    ++failures;
    CHECK(query("memory") == before);
    CHECK(query("handles") == handles);
  }
  CHECK(failures > 3);
  CHECK(engine.stats().tunes == 1);
  call.launch(machine.stream());
  tally(37, failures, "allocations of a tune that fail");
}

TEST_CASE("fault 37: a workspace that cannot be had is an error of that launch alone") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  change_record(overlay, [](store::Record& record) {  // of the implementation that needs a workspace
    store::Choice& choice = one_choice(record);
    choice.implementation = "plain";
    choice.config = "";
  });
  const Engine engine(e2e::options(overlay, MissPolicy::error));
  const ScaleCall call(engine, 64, 128);
  control("fail cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY");
  const Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
  CHECK(error.kind() == ErrorKind::out_of_memory);
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  tally(37, 1, "workspaces that cannot be had");
}

TEST_CASE("fault 37: a device too small for the problem is told by the command, and the buckets that fit are kept") {
  const TemporaryFolder folder;
  // 6 MiB hold what flushes a small L2 and the small bucket, and not the large one.
  const std::string small =
      "FAKE_CUDA='l2 65536; memory 6291456' kiln tune scale rows=64,1024 cols=128,1024 dtype=f32 --json";
  const std::string said = expect(1, small + globals(folder));
  CHECK_MESSAGE(contains(said, R"("bucket":"rows=1024 cols=1024 dtype=f32","outcome":"failed")"), said);
  CHECK(contains(said, R"("bucket":"rows=64 cols=128 dtype=f32","outcome":"tuned")"));
  CHECK(!records_of(folder / "overlay.kiln").empty());
  tally(37, 1, "commands on a device too small for some of their problems");
}

}  // namespace kiln::faults
