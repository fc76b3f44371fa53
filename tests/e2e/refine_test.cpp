// Buckets that are split: parts are found, each is served by its own config, and a new winner ends the split.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "e2e/command.hpp"

namespace e2e {
namespace {

// Of 65 to 128 rows of 128 columns: the best config above about 109 rows, 1.8 % behind others at 96 and 4.7 % at 80.
constexpr const char* slow = "FAKE_CUDA='kernel slow 1.65 scale_tiled<float, 128, 4>' ";
constexpr const char* own_config = R"("config":"threads=128 vector=4")";
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

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string explained(const TemporaryFolder& folder, int rows, const std::string& cols = "128",
                      const std::string& more = {}) {
  return expect(0, "kiln explain scale rows=" + std::to_string(rows) + " cols=" + cols + " dtype=f32 --json" + more +
                       globals(folder));
}

/// Global options that give `scale` one more implementation, which is legal above `rows` and to `last` rows alone and whose
/// kernel is scale_tiled<T, 32, 1>.
std::string with_trap(const TemporaryFolder& folder, int rows = 80, int last = 96) {
  const std::filesystem::path from = std::filesystem::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale";
  const std::filesystem::path to = folder / "ops/scale";
  std::filesystem::create_directories(to.parent_path());
  std::filesystem::copy(from, to);
  const auto text_of = [&](const char* name) {
    std::ifstream file(from / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto replace = [](std::string& text, const std::string& part, const std::string& by) {
    REQUIRE(contains(text, part));
    text.replace(text.find(part), part.size(), by);
  };
  std::string op = text_of("op.toml"), trap = text_of("tiled.toml");
  replace(op, R"("plain"])", R"("plain", "trap"])");
  replace(trap, "[64, 128, 256]", "[32]");
  replace(trap, "[1, 4]", "[1]");
  replace(trap, "threads = 64", "threads = 32");
  replace(trap, "all = [",
          "all = [\"rows > " + std::to_string(rows) + "\", \"rows <= " + std::to_string(last) + "\", ");
  std::ofstream(to / "op.toml") << op;
  std::ofstream(to / "trap.toml") << trap;
  return " --overlay " + (folder / "overlay.kiln").string() + " --templates " + to.parent_path().string() + " ";
}

}  // namespace

TEST_CASE("--refine tunes quarters of a bucket, keeps the one where another config wins, and finds it again") {
  const TemporaryFolder folder;
  const std::string said = refined(folder, "--json");
  CHECK_MESSAGE(contains(said, R"("outcome":"split","axis":"rows","low":65,"edge":80)"), said);
  CHECK(count_of(said, R"("event":"refined")") == 1);
  CHECK(number_of(said, "edge_gain") > 0.03);
  CHECK(number_of(said, "edge_gain") < 0.06);
  const std::string lower = explained(folder, 70), upper = explained(folder, 81);
  CHECK_MESSAGE(contains(lower, "the bucket is split at rows=80"), lower);
  CHECK_MESSAGE(contains(lower, "the record of its lower part"), lower);
  CHECK(contains(lower, R"("cubin_found":true)"));
  CHECK_FALSE(contains(lower, own_config));
  CHECK_MESSAGE(contains(upper, own_config), upper);
  const auto read = [&](const char* rows) {
    return expect(0, std::string("kiln explain scale cols=128 dtype=f32 rows=") + rows + globals(folder));
  };
  CHECK(contains(read("70"), " us, at rows=80\n"));
  CHECK(contains(read("81"), " us, at the bucket's upper edge\n"));
  CHECK(contains(refined(folder), "split before"));
  expect(0, "kiln cache verify " + (folder / "overlay.kiln").string());
  const std::string whole = refined(folder, "--force --threshold 50");
  CHECK_MESSAGE(contains(whole, "at rows=112, 96, 80 nothing is faster by more than the threshold"), whole);
  CHECK_FALSE(contains(explained(folder, 70), "split"));
}

TEST_CASE("--refine gives a third config the sizes below those of the second, and cuts once with --splits 1") {
  const TemporaryFolder folder;
  const std::string refine =
      "FAKE_CUDA='kernel slow 0.756 scale_tiled<float, 64, 4>;kernel slow 0.5294 scale_tiled<float, 64, 1>' "
      "kiln tune scale rows=128 cols=32 dtype=f32 --strategy exhaustive --refine --threshold 1 --json ";
  const std::string said = expect(0, refine + globals(folder));
  CHECK_MESSAGE(contains(said, R"("low":65,"edge":80,"lower":"tiled threads=64 vector=1")"), said);
  CHECK_MESSAGE(contains(said, R"("low":81,"edge":96,"lower":"tiled threads=64 vector=4")"), said);
  CHECK(count_of(said, R"("event":"refined")") == 2);
  const auto answer = [&](int rows) { return explained(folder, rows, "32"); };
  CHECK(contains(answer(80), R"("config":"threads=64 vector=1")"));
  CHECK(contains(answer(81), R"("config":"threads=64 vector=4")"));
  CHECK(contains(answer(97), own_config));
  const std::string once = expect(0, refine + "--force --splits 1" + globals(folder));
  CHECK_MESSAGE(contains(once, R"("low":65,"edge":96,"lower":"tiled threads=64 vector=4")"), once);
  CHECK(count_of(once, R"("event":"refined")") == 1);
  CHECK(contains(answer(80), R"("config":"threads=64 vector=4")"));
}

TEST_CASE(
    "an interrupt keeps the parts that were measured, leaves what is below as it was, and the same command continues") {
  const TemporaryFolder folder;
  const std::string options = with_trap(folder);
  const std::string refine =
      "kiln tune scale rows=128 cols=32 dtype=f32 --strategy exhaustive --refine --splits 2 --threshold 1 --json " +
      options;
  const std::string fast = "kernel slow 0.508 scale_tiled<float, 64, 1>";  // the best below 112 rows
  const auto answer = [&](int rows) {
    return expect(0, "kiln explain scale rows=" + std::to_string(rows) + " cols=32 dtype=f32 --json" + options);
  };
  const std::string said =
      expect(130, "KILN_WORKER=none FAKE_CUDA='" + fast + ";kernel interrupt scale_tiled<float, 32, 1>' " + refine);
  CHECK_MESSAGE(contains(said, R"("outcome":"partly","axis":"rows","low":86,"edge":106)"), said);
  CHECK_MESSAGE(contains(said, "not split up to rows=85"), said);
  CHECK_MESSAGE(contains(said, "after 0 of 1 buckets were refined"), said);
  CHECK(contains(answer(107), own_config));
  CHECK(contains(answer(86), R"("config":"threads=64 vector=1")"));
  CHECK(contains(answer(85), own_config));
  CHECK(contains(answer(70), own_config));
  expect(0, "kiln cache verify " + (folder / "overlay.kiln").string());
  const std::string again = expect(0, "FAKE_CUDA='" + fast + "' " + refine);
  CHECK_MESSAGE(contains(again, R"("outcome":"split","axis":"rows","low":65,"edge":106)"), again);
  CHECK(contains(answer(70), R"("config":"threads=64 vector=1")"));
  CHECK(contains(expect(0, "FAKE_CUDA='" + fast + "' " + refine), R"("outcome":"found")"));
}

TEST_CASE(
    "a split that ended early goes on where it did, and keeps what was measured above, however often it ends there") {
  const TemporaryFolder folder;
  const std::string options = with_trap(folder);
  const std::string refine =
      "kiln tune scale rows=128 cols=32 dtype=f32 --strategy exhaustive --refine --splits 2 --threshold 1 --json " +
      options;
  const std::string fast = "kernel slow 0.508 scale_tiled<float, 64, 1>",
                    fast_config = R"("config":"threads=64 vector=1")";
  const auto interrupted = [&](const std::string& faults) {
    return expect(130,
                  "KILN_WORKER=none FAKE_CUDA='" + faults + ";kernel interrupt scale_tiled<float, 32, 1>' " + refine);
  };
  const auto answer = [&](int rows) {
    return expect(0, "kiln explain scale rows=" + std::to_string(rows) + " cols=32 dtype=f32 --json" + options);
  };
  SUBCASE("below a part") {
    interrupted(fast);
    const std::string again = interrupted("heal");  // by now another config would win at 106 rows
    CHECK_MESSAGE(contains(again, R"("outcome":"partly","axis":"rows","low":86,"edge":106)"), again);
    CHECK_FALSE(contains(again, "edge_gain"));
    CHECK(contains(answer(106), fast_config));
    CHECK(contains(answer(85), own_config));
    const std::string done = expect(0, refine);
    CHECK_MESSAGE(contains(done, R"("outcome":"split","axis":"rows","low":86,"edge":106)"), done);
    CHECK(contains(answer(106), fast_config));
    CHECK_FALSE(contains(answer(85), fast_config));
  }
  SUBCASE("below a part, at one that fails each time") {
    for (const std::string& faults : {fast, std::string("heal")}) {
      const std::string failing = "KILN_WORKER=none FAKE_CUDA='" + faults;
      const std::string said = expect(5, failing + ";kernel fault scale_tiled<float, 32, 1>' " + refine);
      CHECK_MESSAGE(contains(said, "candidate trap threads=32 vector=1 of scale broke the device context"), said);
      CHECK(contains(answer(106), fast_config));
      CHECK(contains(answer(85), own_config));
    }
    CHECK(contains(expect(0, refine), R"("outcome":"split","axis":"rows","low":86,"edge":106)"));
  }
  SUBCASE("below a part that was not kept") {
    const std::string said = interrupted("heal");
    CHECK_MESSAGE(contains(said, R"("outcome":"partly")"), said);
    const std::string done = expect(0, "FAKE_CUDA='" + fast + "' " + refine);
    CHECK_MESSAGE(contains(done, R"("outcome":"split","axis":"rows","low":65,"edge":85)"), done);
    CHECK(contains(answer(106), own_config));
  }
  CHECK(contains(expect(0, refine), R"("outcome":"found")"));
  expect(0, "kiln cache verify " + (folder / "overlay.kiln").string());
}

TEST_CASE("the second length at which a part's configs are compared lies in the part") {
  const TemporaryFolder folder;
  const std::string options = with_trap(folder, 88);
  // The best by 1.5 % at 96 rows, and by more at 91. Of the whole bucket up to there it would be 85, where the default, far slower, would serve in its place.
  const std::string said =
      expect(0,
             "FAKE_CUDA='kernel slow 0.4015 scale_tiled<float, 32, 1>' kiln tune scale rows=128 cols=32 dtype=f32 "
             "--strategy exhaustive --refine --threshold 0.5 --json " +
                 options);
  CHECK_MESSAGE(contains(said, R"("low":89,"edge":96,"lower":"trap threads=32 vector=1")"), said);
  CHECK(contains(said, R"("low":65,"edge":88,"lower":"tiled)"));  // where it is not legal, a finer cut is tried
}

TEST_CASE("of a bucket that is to be split and has no record, its own config is tuned for the uppermost part") {
  const TemporaryFolder folder;
  const std::string options = with_trap(folder, 110, 128);
  const auto own = [&](const std::string& more) {
    expect(0,
           "FAKE_CUDA='kernel slow 0.36 scale_tiled<float, 32, 1>' kiln tune scale rows=128 cols=32 dtype=f32 "
           "--strategy exhaustive " +
               more + options);
    return expect(0, "kiln explain scale rows=128 cols=32 dtype=f32 --json" + options) +
           expect(0, "kiln cache export --text --no-candidates" + options);
  };
  // The fastest at 128 rows, by less than 2 %. Of the whole bucket it is not legal at the second length, 107, but at that of the upper quarter, 123.
  const std::string whole = own(""), before = own("--refine"), split = own("--refine --force");
  CHECK(value_of(whole, "implementation") == "tiled");
  CHECK_FALSE(contains(whole, "for rows from"));
  CHECK(value_of(before, "implementation") == "tiled");
  CHECK(value_of(split, "implementation") == "trap");
  CHECK_MESSAGE(contains(split, "; for rows from 113 on"), split);
}

TEST_CASE("where the config of the part above is not legal, a thirty-second of the bucket is cut off") {
  const TemporaryFolder folder;
  const std::string said =
      expect(0,
             "FAKE_CUDA='kernel slow 0.4 scale_tiled<float, 32, 1>' kiln tune scale rows=128 cols=32 dtype=f32 "
             "--strategy exhaustive --refine --threshold 0.5 --json " +
                 with_trap(folder, 90));
  CHECK_MESSAGE(contains(said, R"("low":91,"edge":96,"lower":"trap threads=32 vector=1")"), said);
  CHECK_MESSAGE(contains(said, R"("low":65,"edge":90,"lower":"tiled)"), said);
}

TEST_CASE(
    "finer parts are tried where the model expects the config from above to be slower by more than the threshold") {
  const TemporaryFolder folder;
  const std::filesystem::path op = folder / "ops/scale";
  std::filesystem::create_directories(op.parent_path());
  std::filesystem::copy(std::filesystem::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale", op);
  std::ofstream(op / "tiled.toml", std::ios::app)
      << "[pass.model]\nread_bytes = \"(vector == 4 ? 104 : 100) * 10000000\"\n";  // of which the memory is all
  const auto split = [&](const char* threshold) {
    return expect(0, std::string(slow) + tune + " --force --refine --json --threshold " + threshold + " --overlay " +
                         (folder / "overlay.kiln").string() + " --templates " + op.parent_path().string());
  };
  const std::string finer = split("3"), quarters = split("4.5");
  CHECK_MESSAGE(contains(finer, R"("low":65,"edge":88,)"), finer);
  CHECK_MESSAGE(contains(quarters, R"("low":65,"edge":80,)"), quarters);
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
  CHECK_FALSE(contains(explained(folder, 70, "128", base), "split"));
  std::filesystem::remove(folder / "overlay.kiln");
  CHECK(contains(explained(folder, 70, "128", base), "the bucket is split"));
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
    const std::string lower = explained(empty, 70, "128", " --base " + base);
    CHECK_MESSAGE(contains(lower, "the record of its lower part"), lower);
    CHECK_MESSAGE(contains(lower, R"("cubin_found":true)"), lower);
    CHECK(contains(lower, R"("origin":"base")"));
  }
}

}  // namespace e2e
