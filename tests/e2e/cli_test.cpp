// The command, end to end.
#include <fstream>

#include "e2e/command.hpp"

namespace e2e {
namespace {

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("tune, run, replay, explain: the second time nothing is tuned") {
  const TemporaryFolder folder;
  const std::string at = globals(folder);
  expect(0, "kiln tune scale rows=1..64 cols=128 dtype=f32" + at);
  CHECK(contains(expect(0, "kiln tune scale rows=33..64 cols=128 dtype=f32 --json" + at), "scale"));
  CHECK(contains(expect(0, "kiln run scale rows=50 cols=100 dtype=f32 factor=2" + at), "tiled"));
  const std::string explained = expect(0, "kiln explain scale rows=50 cols=100 dtype=f32" + at);
  CHECK(contains(explained, "overlay"));
  CHECK(contains(explained, "rows=64"));
  write(folder / "trace",
        "scale rows=50 cols=100 dtype=f32\nscale rows=51 cols=100 dtype=f32\nscale rows=7 cols=128 dtype=f32\n");
  const std::string replayed = expect(0, "kiln replay " + (folder / "trace").string() + " --json" + at);
  CHECK_MESSAGE(contains(replayed, "\"tunes\":0"), replayed);
}

TEST_CASE("a tune of a few trials says how many of all candidates it tried") {
  const TemporaryFolder folder;
  const std::string said = expect(0, "kiln tune scale rows=64 cols=128 dtype=f32 --trials 1" + globals(folder));
  CHECK_MESSAGE(contains(said, "(1 of "), said);
}

TEST_CASE("a tune of which the samples are not written says so, and its record holds") {
  const TemporaryFolder folder;
  const std::string tune = "kiln tune scale rows=64 cols=128 dtype=f32 --samples /dev/full" + globals(folder);
  const std::string said = expect(0, tune);
  CHECK_MESSAGE(contains(said, "the samples of this tune are not in /dev/full: No space left on device"), said);
  CHECK(contains(expect(0, "kiln cache ls" + globals(folder)), "1 record"));
  CHECK_FALSE(contains(expect(0, "kiln -q " + tune.substr(5) + " --force"), "/dev/full"));
}

TEST_CASE("replay gives the waits of first launches apart from the device time of the others") {
  const TemporaryFolder folder;
  write(folder / "trace",
        "scale rows=50 cols=100 dtype=f32\nscale rows=51 cols=100 dtype=f32\nscale rows=7 cols=128 dtype=bf16\n");
  const std::string replayed = expect(0, "kiln replay " + (folder / "trace").string() + " --json" + globals(folder));
  CHECK_MESSAGE(contains(replayed, "\"tunes\":2"), replayed);
  const std::string report = replayed.substr(replayed.find("\"event\":\"replayed\""));
  const double stalls = std::stod(value_of(report, "stalls"));
  CHECK(stalls >= 2);  // a tune each
  CHECK(stalls + std::stod(value_of(report, "device_launches")) == 3);
  CHECK(std::stod(value_of(report, "stall_ns")) > 1e6);
  CHECK(std::stod(value_of(report, "device_ns")) < std::stod(value_of(report, "stall_ns")));
}

TEST_CASE("run and replay tell what went wrong while they launched, also where they fail") {
  const TemporaryFolder folder;
  const std::string store = " --remote " + (folder / "none").string() + " ",
                    why = "none is not there: No such file or directory; create or mount it\n";
  write(folder / "trace", "scale rows=50 cols=128 dtype=f32\n");
  const std::string replay = "kiln replay " + (folder / "trace").string() + " --policy error";
  CHECK(contains(expect(1, replay + store + globals(folder)), why));
  const std::string run = "kiln run scale rows=50 cols=128 dtype=f32" + store + globals(folder);
  const std::string told = expect(0, run);
  CHECK_MESSAGE(contains(told, why), told);
  CHECK(told.find(why) == told.rfind(why));
  CHECK_FALSE(contains(expect(0, "kiln -q run scale rows=900 cols=128 dtype=f32" + store + globals(folder)), why));
}

TEST_CASE("what is exported as text comes back through import, and merges") {
  const TemporaryFolder folder;
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + globals(folder));
  const std::string text = (folder / "records.jsonl").string();
  expect(0, "kiln cache export --text -o " + text + globals(folder));
  CHECK(contains(expect(0, "cat " + text), "scale"));
  expect(0, "kiln cache import " + text + own_overlay(folder, "other.kiln"));
  CHECK(contains(expect(0, "kiln cache ls" + globals(folder, "other.kiln")), "threads=128 vector=4"));
  CHECK(
      contains(expect(0, "kiln explain scale rows=64 cols=128 dtype=f32" + globals(folder, "other.kiln")), "overlay"));
  expect(0, "kiln tune scale rows=256 cols=128 dtype=f32" + globals(folder, "third.kiln"));
  const std::string merged = (folder / "merged.kiln").string();
  expect(0, "kiln cache merge -o " + merged + " " + (folder / "other.kiln").string() + " " +
                (folder / "third.kiln").string());
  CHECK(contains(expect(0, "kiln cache ls " + merged), "2 records"));
  CHECK(contains(expect(0, "kiln cache show scale" + globals(folder)), "vector=4"));
  expect(0, "kiln cache stats" + globals(folder));
}

TEST_CASE("an export for a workload serves it alone, without NVRTC; prune keeps what the device here needs") {
  const TemporaryFolder folder;
  const std::string overlay = (folder / "overlay.kiln").string(), shipped = (folder / "shipped.kiln").string();
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + globals(folder));
  expect(0, "kiln tune scale rows=256 cols=128 dtype=f32" + globals(folder));
  write(folder / "workload.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = 64, cols = 128 }\ntypes = { dtype = [\"f32\"] }\n");
  expect(0, "kiln cache export --workload " + (folder / "workload.toml").string() + " -o " + shipped + globals(folder));
  CHECK(contains(expect(0, "kiln cache ls " + shipped), ": 1 record for "));
  CHECK(contains(expect(0, "kiln cache verify " + shipped), "sound"));
  write(folder / "trace", "scale rows=50 cols=100 dtype=f32\n");
  const std::string replayed = expect(0, "KILN_NVRTC_LIBRARY=none kiln replay " + (folder / "trace").string() +
                                             " --json --base " + shipped + globals(folder, "none.kiln"));
  CHECK_MESSAGE(contains(replayed, "\"compiles\":0"), replayed);
  const std::string kept = expect(0, "kiln cache prune --stale --json" + globals(folder));
  CHECK_MESSAGE(contains(kept, "\"event\":\"pruned\""), kept);
  CHECK_MESSAGE(contains(kept, "\"records\":0"), kept);
  CHECK(contains(expect(0, "kiln cache prune --other-devices --json" + globals(folder)), "\"records\":0"));
  expect(0, "kiln cache compact" + own_overlay(folder));
  CHECK(contains(expect(0, "kiln cache verify " + overlay), "sound"));
  CHECK(contains(expect(0, "kiln cache diff --exit-code " + overlay + " " + overlay), "0 changed"));
}

TEST_CASE("a deployable file is made without a GPU, and serves with neither NVRTC nor an overlay") {
  const TemporaryFolder folder;
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + globals(folder));
  const std::string text = (folder / "records.jsonl").string(), deployed = (folder / "deployed.kiln").string();
  expect(0, "kiln cache export --text -o " + text + globals(folder));
  write(folder / "workload.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = 64, cols = 128 }\ntypes = { dtype = [\"f32\"] }\n");
  expect(0, "KILN_CUDA_LIBRARY=none kiln prewarm " + (folder / "workload.toml").string() + " --arch sm_90a -o " +
                deployed + " --base " + text + globals(folder, "empty.kiln"));
  const std::string ran = expect(0, "KILN_NVRTC_LIBRARY=none kiln explain scale rows=64 cols=128 dtype=f32 --base " +
                                        deployed + globals(folder, "none.kiln"));
  CHECK(contains(ran, "base"));
  write(folder / "trace", "scale rows=50 cols=100 dtype=f32\nscale rows=51 cols=100 dtype=f32\n");
  const std::string replayed = expect(0, "KILN_NVRTC_LIBRARY=none kiln replay " + (folder / "trace").string() +
                                             " --json --base " + deployed + globals(folder, "none.kiln"));
  CHECK_MESSAGE(contains(replayed, "\"compiles\":0"), replayed);
}

TEST_CASE("the exit status says what kind of thing went wrong, and one line says what") {
  const TemporaryFolder folder;
  const std::string at = globals(folder);
  const auto refused = [&](int status, const std::string& line, const char* said) {
    const std::string output = expect(status, line);
    CHECK_MESSAGE(contains(output, said), line, "\n", output);
  };
  refused(2, "kiln nonsense", "tune");
  refused(2, "kiln tune scail rows=1 cols=1" + at, "scale");
  refused(2, "kiln tune scale rows=0 cols=1" + at, "rows");
  refused(2, "kiln tune scale rows=-1 cols=1" + at, "rows");
  refused(2, "kiln tune scale rows=4611686018427387904 cols=1" + at, "rows");
  refused(2, "kiln tune scale rows=99999999999999999999 cols=1" + at, "rows");
  refused(2, "kiln tune scale rwos=1 cols=1" + at, "rows");
  refused(2, "kiln explain scale rows=1" + at, "cols");
  refused(2, "kiln cache export" + at, "-o");
  refused(3, "KILN_CUDA_LIBRARY=none kiln tune scale rows=1 cols=1 dtype=f32" + at, "driver");
  refused(3, "FAKE_CUDA='devices 0' kiln tune scale rows=1 cols=1 dtype=f32" + at, "");
  refused(3, "KILN_NVRTC_LIBRARY=none kiln tune scale rows=1 cols=1 dtype=f32" + at, "NVRTC");
  write(folder / "broken.kiln", "this is no database, but long enough to be read as one by mistake");
  refused(4, "kiln cache ls " + (folder / "broken.kiln").string(), "broken.kiln");
  refused(0, "kiln --help", "tune");
  refused(0, "kiln tune --help", "rows=");
}

TEST_CASE("a command that looks around works without a driver") {
  const TemporaryFolder folder;
  const std::string at = globals(folder);
  CHECK(contains(expect(0, "KILN_CUDA_LIBRARY=none kiln ops" + own_ops()), "rms_norm"));
  CHECK(contains(expect(0, "KILN_CUDA_LIBRARY=none kiln ops gemm" + own_ops()), "mma"));
  expect(0, "KILN_CUDA_LIBRARY=none KILN_NVRTC_LIBRARY=none kiln cache ls --overlay ''" + own_ops());
  CHECK(contains(shell("KILN_CUDA_LIBRARY=none KILN_NVRTC_LIBRARY=none kiln doctor" + at).output, "driver"));
  CHECK(contains(expect(0, "kiln devices"), "sm_90"));
  CHECK(contains(expect(0, "kiln doctor" + at), "H200"));
}

TEST_CASE("an op's kernels are compiled without a GPU, and one that does not compile is named with file and line") {
  const TemporaryFolder folder;
  const std::string own = (folder / "squared_relu").string();
  expect(0, "cp -r " KILN_SOURCE_DIR "/examples/ops/squared_relu " + own);
  const std::string check =
      "KILN_CUDA_LIBRARY=none kiln ops squared_relu count=1000 --arch sm_90a --compile --templates " +
      (folder / ".").string();
  const std::string good = expect(0, check);
  CHECK_MESSAGE(contains(good, "squared_relu/reference for sm_90a: compiles, "), good);
  CHECK(contains(good, "squared_relu/vectorized "));
  expect(3, "KILN_NVRTC_LIBRARY=none " + check);
  const auto old = shell("KILN_CUDA_LIBRARY=none kiln check " + own + " --arch sm_70");  // which NVRTC 13 has no more
  CHECK_MESSAGE((old.status == 0 || old.status == 5), old.output);
  if (old.status == 5) {
    CHECK_MESSAGE(contains(old.output, "kernels were not compiled: sm_70 was asked for, and NVRTC"), old.output);
    CHECK_MESSAGE(contains(old.output, "0 errors, 0 warnings; nothing was compiled"), old.output);
  }
  expect(0, "echo 'static_assert(false);' >> " + own + "/squared_relu.cuh");
  const std::string bad = expect(5, check);
  CHECK_MESSAGE(contains(bad, "squared_relu/reference for sm_90a: does not compile"), bad);
  CHECK_MESSAGE(contains(bad, "squared_relu.cuh"), bad);
}

TEST_CASE("an op with prepared inputs is tuned, run and replayed, each launch with inputs for its own sizes") {
  const TemporaryFolder folder;
  const std::string at = globals(folder);
  expect(0, "kiln tune segment_sum rows=1024 groups=8 cols=16" + at);
  CHECK(contains(expect(0, "kiln run segment_sum rows=900 groups=7 cols=16" + at), "right"));
  const std::string wrong =
      expect(1, "FAKE_CUDA='kernel wrong segment_sum<' kiln run segment_sum rows=900 groups=7 cols=16" + at);
  CHECK_MESSAGE(contains(wrong, "with inputs 'skewed': output 'y'"), wrong);
  write(
      folder / "trace",
      "segment_sum rows=900 groups=7 cols=16\nsegment_sum rows=600 groups=8 cols=16\nsegment_sum rows=900 groups=7 cols=16\n");
  const std::string replayed = expect(0, "kiln replay --verify --json " + (folder / "trace").string() + at);
  CHECK_MESSAGE(contains(replayed, "\"verified\":2,\"wrong\":0"), replayed);
}

TEST_CASE("run verifies: a kernel that computes wrong values is found and told") {
  const TemporaryFolder folder;
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + globals(folder));
  const std::string output = expect(
      1, "FAKE_CUDA='kernel wrong scale_tiled' kiln run scale rows=64 cols=128 dtype=f32 factor=2" + globals(folder));
  CHECK(contains(output, "y"));
}

}  // namespace e2e
