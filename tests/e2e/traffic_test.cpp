// From what production launched to what is tuned: coverage, prewarm from the histogram, several GPUs.
#include <fstream>

#include "e2e/command.hpp"

namespace e2e {

using kiln::Engine;
using kiln::MissPolicy;

namespace {

/// A service without records: launches that only its histogram remembers.
void serve(const std::filesystem::path& overlay) {
  const Machine machine;
  const Engine engine(options(overlay, MissPolicy::nearest));
  const auto launch = [&](std::int64_t rows, std::int64_t cols, int times) {
    const ScaleCall call(engine, rows, cols);
    for (int i = 0; i < times; ++i) call.op.launch(call.problem, call.arguments, machine.stream());
    machine.synchronize();
  };
  launch(500, 128, 1600);
  launch(400, 128, 800);
  launch(20, 128, 400);
  launch(2000, 128, 160);
}

/// The value of `"name":` in a line of JSON; -1 when it is not there.
double number(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\":");
  return at == std::string::npos ? -1 : std::atof(json.c_str() + at + name.size() + 3);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

std::string write_workload(const TemporaryFolder& folder, const std::string& rows) {
  const std::filesystem::path path = folder / "workload.toml";
  std::ofstream(path) << "[[workload]]\nop = \"scale\"\naxes = { rows = " << rows
                      << ", cols = 128 }\ntypes = { dtype = [\"f32\"] }\n";
  return path.string();
}

}  // namespace

TEST_CASE("what production launched is tuned elsewhere, what takes most time first, and then covers it") {
  const TemporaryFolder folder;
  serve(folder / "production.kiln");
  const std::string from = " --from-histogram " + (folder / "production.kiln").string();

  const std::string bare =
      expect(1, "kiln coverage --json --require 1 --device-class sm_90/mp132/l2_62914560/smem_232448/bus_6144" + from +
                    globals(folder));
  CHECK(number(bare, "launch_coverage") == 0);

  const std::string tuned = expect(0, "kiln prewarm --json --limit 2" + from + globals(folder));
  const std::size_t first = tuned.find(R"("event":"demand","op":"scale","bucket":"rows=512)");
  const std::size_t second = tuned.find(R"("event":"demand","op":"scale","bucket":"rows=2048)");
  CHECK_MESSAGE(first < second, tuned);
  CHECK(count(tuned, R"("outcome":"tuned")") + count(tuned, R"("outcome":"found")") == 2);

  const std::string covered = expect(0, "kiln coverage --json --require 70" + from + globals(folder));
  CHECK(number(covered.substr(covered.find(R"("event":"coverage")")), "launch_coverage") ==
        doctest::Approx(0.81).epsilon(0.12));
  expect(1, "kiln coverage --require 99" + from + globals(folder));
  expect(0, "kiln prewarm --quiet" + from + globals(folder));
  const std::string all = expect(0, "kiln coverage --all --require 100 --by time" + from + globals(folder));
  CHECK(contains(all, "100.0 % of launches"));
}

TEST_CASE("--top tunes the fewest buckets that come to that share of the time") {
  const TemporaryFolder folder;
  serve(folder / "overlay.kiln");
  const std::string tuned = expect(0, "kiln prewarm --json --top 20 --from-histogram" + globals(folder));
  CHECK(count(tuned, R"("event":"demand")") == 1);
  CHECK(contains(tuned, R"("bucket":"rows=512)"));
}

TEST_CASE("a workload's coverage counts its buckets, and names those without a record") {
  const TemporaryFolder folder;
  const std::string workload = write_workload(folder, "\"1..64\"");
  expect(0, "kiln tune scale rows=33..64 cols=128 dtype=f32" + globals(folder));
  const std::string text = expect(1, "kiln coverage " + workload + " --require 100" + globals(folder));
  CHECK(contains(text, "1 of 7 buckets"));
  CHECK(contains(text, "rows=1..32 "));
  CHECK_FALSE(contains(text, "rows=64 "));
  expect(0, "kiln coverage " + workload + globals(folder));
}

TEST_CASE("a demand that is not clear is refused") {
  const TemporaryFolder folder;
  const std::string workload = write_workload(folder, "64");
  const std::string there = " --device-class sm_90/mp132/l2_62914560/smem_232448/bus_6144" + globals(folder);
  CHECK(contains(expect(2, "kiln coverage" + there), "--from-histogram"));
  CHECK(contains(expect(2, "kiln coverage " + workload + " --from-histogram" + there), "give only one"));
  CHECK(contains(expect(2, "kiln coverage --from-histogram" + there), "counts no launches"));
  CHECK(contains(expect(2, "kiln prewarm " + workload + " --top 50" + globals(folder)), "--from-histogram"));
  for (const char* devices : {"x", "0,", "1,1", "-1", "0;1"})
    expect(2, "FAKE_CUDA='devices 3' kiln prewarm " + workload + " --devices '" + devices + "'" + globals(folder));
  expect(3, "FAKE_CUDA='devices 3' kiln prewarm " + workload + " --devices 0,7" + globals(folder));
}

TEST_CASE("several GPUs share out the buckets of a workload, and fill one overlay") {
  const TemporaryFolder folder;
  const std::string workload = write_workload(folder, "\"1..256\"");
  const std::string tuned =
      expect(0, "FAKE_CUDA='devices 3' kiln prewarm " + workload + " --json --devices all" + globals(folder));
  CHECK(count(tuned, R"("outcome":"tuned")") == 9);
  CHECK(count(tuned, R"("event":"finished")") == 9);
  for (const char* device : {R"("device":0)", R"("device":1)", R"("device":2)"}) CHECK(contains(tuned, device));
  CHECK(contains(expect(0, "kiln cache ls" + globals(folder)), "9 records"));
  expect(0, "kiln coverage " + workload + " --require 100" + globals(folder));
  const std::string again = expect(
      0, "FAKE_CUDA='devices 3' kiln tune scale rows=1..256 cols=128 dtype=f32 --json --devices 0,2" + globals(folder));
  CHECK(count(again, R"("outcome":"found")") == 9);
}

TEST_CASE("an interruption over several GPUs keeps what was finished, and the same command continues") {
  const TemporaryFolder folder;
  const std::string workload = write_workload(folder, "\"1..1024\"");
  const std::string command =
      "FAKE_CUDA='devices 2' '" KILN_COMMAND "' prewarm " + workload + " --json --devices all" + globals(folder);
  const std::string log = (folder / "log").string();
  const std::string cut = expect(0, command + " > " + log + " 2>&1 & child=$!; while ! grep -q finished " + log +
                                        "; do sleep 0.05; done; kill -TERM $child; wait $child; echo status $?");
  CHECK_MESSAGE(contains(cut, "status 130"), cut);
  const std::string rest =
      expect(0, "FAKE_CUDA='devices 2' kiln prewarm " + workload + " --json --devices all" + globals(folder));
  CHECK(count(rest, R"("outcome":"found")") >= 1);
  CHECK(count(rest, R"("outcome":"found")") + count(rest, R"("outcome":"tuned")") == 11);
}

}  // namespace e2e
