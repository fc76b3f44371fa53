// Buckets that are split: the size is found, each part is served by its own config, and a new winner ends the split.
#include <fstream>

#include "e2e/command.hpp"

namespace e2e {
namespace {

// Of 65 to 128 rows of 128 columns: the best config above about 94 rows, behind others below.
constexpr const char* slow = "FAKE_CUDA='kernel slow 1.615 scale_tiled<float, 128, 4>' ";
constexpr const char* tune = "kiln tune scale rows=128 cols=128 dtype=f32 --strategy exhaustive";

std::string refined(const TemporaryFolder& folder, const std::string& more = {}) {
  return expect(0, std::string(slow) + tune + " --refine " + more + globals(folder));
}

/// The number after `name` in JSON.
double number_of(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\":");
  REQUIRE_MESSAGE(at != std::string::npos, json);
  return std::stod(json.substr(at + name.size() + 3));
}

std::string explained(const TemporaryFolder& folder, int rows, const std::string& more = {}) {
  return expect(
      0, "kiln explain scale rows=" + std::to_string(rows) + " cols=128 dtype=f32 --json" + more + globals(folder));
}

}  // namespace

TEST_CASE("--refine finds where another config begins to win, keeps it, and finds it again") {
  const TemporaryFolder folder;
  const std::string said = refined(folder, "--json");
  CHECK_MESSAGE(contains(said, R"("outcome":"split","axis":"rows","low":65)"), said);
  const double edge = number_of(said, "edge");
  CHECK(edge >= 80);
  CHECK(edge <= 108);
  CHECK(number_of(said, "low_gain") > number_of(said, "edge_gain"));
  CHECK(number_of(said, "low_gain") > 0.03);
  const std::string lower = explained(folder, 70), upper = explained(folder, 128);
  CHECK_MESSAGE(contains(lower, "the bucket is split at rows="), lower);
  CHECK_MESSAGE(contains(lower, "the record of its lower part"), lower);
  CHECK(contains(lower, R"("cubin_found":true)"));
  CHECK_FALSE(contains(lower, R"("config":"threads=128 vector=4")"));
  CHECK_MESSAGE(contains(upper, R"("config":"threads=128 vector=4")"), upper);
  CHECK(contains(refined(folder), "split before"));
  expect(0, "kiln cache verify " + (folder / "overlay.kiln").string());
  CHECK(contains(refined(folder, "--force --threshold 50"), "nothing is faster by more than the threshold"));
  CHECK_FALSE(contains(explained(folder, 70), "split"));
}

TEST_CASE(
    "--refine splits a bucket where a third config wins between two others, unless one split is all it may have") {
  const TemporaryFolder folder;
  const std::string three =
      "FAKE_CUDA='kernel slow 1.65 scale_tiled<float, 128, 4>;kernel slow 0.59 scale_tiled<float, 64, 1>' ";
  const std::string refine = three + tune + " --refine --threshold 1 --json ";
  const std::string said = expect(0, refine + globals(folder));
  const std::size_t first = said.find(R"("outcome":"split")");
  REQUIRE_MESSAGE(first != std::string::npos, said);
  const std::size_t second = said.find(R"("outcome":"split")", first + 1);
  REQUIRE_MESSAGE(second != std::string::npos, said);
  CHECK(said.find(R"("outcome":"split")", second + 1) == std::string::npos);
  const std::string lower = explained(folder, 70), middle = explained(folder, 96), upper = explained(folder, 128);
  CHECK_MESSAGE(contains(lower, R"("config":"threads=64 vector=1")"), lower);
  CHECK_MESSAGE(contains(middle, "the record of its lower part"), middle);
  CHECK_FALSE(contains(middle, R"("config":"threads=64 vector=1")"));
  CHECK_MESSAGE(contains(upper, R"("config":"threads=128 vector=4")"), upper);
  expect(0, refine + "--force --splits 1" + globals(folder));
  CHECK_FALSE(contains(explained(folder, 96), "the record of its lower part"));
}

TEST_CASE("--refine is refused where it cannot do anything") {
  const TemporaryFolder folder;
  expect(2, "kiln tune --stale --refine" + globals(folder));
  expect(2, std::string(tune) + " --threshold 5" + globals(folder));
  CHECK(contains(expect(0, "kiln tune scale rows=1 cols=128 dtype=f32 --refine" + globals(folder)), "one size only"));
}

TEST_CASE(
    "each part of a split bucket is launched with its own config, is counted as a hit, and is found in a capture") {
  const TemporaryFolder folder;
  refined(folder);
  const Machine machine;
  const kiln::Engine engine(options(folder / "overlay.kiln", kiln::MissPolicy::error));
  const ScaleCall small(engine, 70, 128), large(engine, 128, 128);
  const kiln::Plan plan = small.op.plan(small.problem, machine.stream());
  CHECK(plan.config() == "threads=128 vector=4");  // of the bucket as a whole
  const auto launches = [] { return query("launches scale_tiled<float, 128, 4>"); };
  const std::int64_t before = launches();
  REQUIRE(driver_call<kiln::Stream, int>("cuStreamBeginCapture_v2", machine.stream(), 0) == 0);
  CHECK(small.op.launch(small.problem, small.arguments, machine.stream()) == kiln::Origin::overlay);
  CUgraph_st* graph = nullptr;
  REQUIRE(driver_call<kiln::Stream, CUgraph_st**>("cuStreamEndCapture", machine.stream(), &graph) == 0);
  driver_call<CUgraph_st*>("cuGraphDestroy", graph);
  CHECK(small.launch(machine.stream()) == kiln::Origin::hot);
  CHECK(plan.launch(small.problem, small.arguments, machine.stream()) == kiln::Origin::hot);
  machine.synchronize();
  CHECK(launches() == before);
  CHECK(large.launch(machine.stream()) == kiln::Origin::overlay);  // the first of its own part
  CHECK(large.launch(machine.stream()) == kiln::Origin::hot);
  CHECK(launches() == before + 2);
  CHECK(engine.stats().misses.unusable == 0);
}

TEST_CASE("a new winner ends the split of its bucket, also where the split lies in a base") {
  const TemporaryFolder folder;
  refined(folder);
  const std::string base = " --base " + (folder / "base.kiln").string();
  std::filesystem::copy_file(folder / "overlay.kiln", folder / "base.kiln");
  expect(0, std::string(tune) + " --force" + globals(folder));
  CHECK_FALSE(contains(expect(0, "kiln cache ls --json" + globals(folder)), "rows<="));
  CHECK_FALSE(contains(explained(folder, 70, base), "split"));
  std::filesystem::remove(folder / "overlay.kiln");
  CHECK(contains(explained(folder, 70, base), "the bucket is split"));
}

TEST_CASE("a deployment takes a bucket's splits along, with their machine code") {
  const TemporaryFolder folder;
  refined(folder);
  std::ofstream(folder / "workload.toml")
      << "[[workload]]\nop = \"scale\"\naxes = { rows = 128, cols = 128 }\ntypes = { dtype = \"f32\" }\n";
  const std::string workload = (folder / "workload.toml").string();
  const std::string made = (folder / "made.kiln").string(), exported = (folder / "exported.kiln").string();
  expect(0, "kiln prewarm " + workload + " -o " + made + globals(folder));
  expect(0, "kiln cache export --workload " + workload + " -o " + exported + globals(folder));
  for (const std::string& base : {made, exported}) {
    const TemporaryFolder empty;
    const std::string lower = explained(empty, 70, " --base " + base);
    CHECK_MESSAGE(contains(lower, "the record of its lower part"), lower);
    CHECK_MESSAGE(contains(lower, R"("cubin_found":true)"), lower);
    CHECK(contains(lower, R"("origin":"base")"));
  }
}

}  // namespace e2e
