// kiln bench: records are timed again, and lengths against their buckets.
#include <fstream>
#include <sstream>

#include "e2e/command.hpp"

namespace e2e {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The same record, said to have taken a tenth of the time.
void write_faster(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::string text = read(from);
  for (const char* name : {"cost_ns", "low_ns", "high_ns"}) {
    const std::string field = "\"" + std::string(name) + "\":";
    const std::size_t begin = text.find(field) + field.size();
    const std::size_t end = text.find(',', begin);
    std::ostringstream number;
    number << std::stod(text.substr(begin, end - begin)) / 10;
    text.replace(begin, end - begin, number.str());
  }
  std::ofstream(to) << text;
}

}  // namespace

TEST_CASE("records that hold are good; one that has become slower is named, and the exit status is for a script") {
  const TemporaryFolder folder;
  expect(0, "kiln tune scale rows=64,256 cols=128 dtype=f32" + globals(folder));
  CHECK(contains(expect(0, "kiln bench records" + globals(folder)),
                 "of 2 records of this device were timed again, 0 with a finding"));
  const std::string slow = "FAKE_CUDA='kernel slow 3 scale_tiled<float, 128, 4' ";
  const std::string found = expect(1, slow + "kiln bench records" + globals(folder));
  CHECK_MESSAGE((contains(found, "slower: 3.0") || contains(found, "slower: 2.9")), found);  // by the clock's noise
  CHECK_MESSAGE(contains(found, "beaten: the default takes"), found);
  CHECK(contains(expect(1, slow + "kiln bench records --json" + globals(folder)), "\"found\":2"));
  CHECK(contains(expect(1, slow + "kiln bench records --json --limit 1" + globals(folder)), "\"records\":1"));
  expect(0, slow + "kiln bench records --tolerance 400" + globals(folder));
  const std::string all = expect(1, "FAKE_CUDA='kernel slow 3 scale_tiled' kiln bench records" + globals(folder));
  CHECK_MESSAGE(contains(all, "the machine may have changed"), all);
  CHECK_FALSE(contains(all, "beaten"));
}

TEST_CASE("a record that comes out wrong, or breaks its context, is named, and the others are still timed") {
  const TemporaryFolder folder;
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + globals(folder));
  const std::string wrong =
      expect(1, "FAKE_CUDA='kernel wrong scale_tiled<float, 128, 4' kiln bench records" + globals(folder));
  CHECK_MESSAGE(contains(wrong, "wrong_result: "), wrong);
}

TEST_CASE("an earlier release's faster cost for the same key is held against a record") {
  const TemporaryFolder folder;
  const auto text = folder / "now.jsonl", faster = folder / "faster.jsonl";
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + globals(folder));
  expect(0, "kiln cache export --text -o " + text.string() + globals(folder));
  expect(0, "kiln bench records --against " + text.string() + globals(folder));
  write_faster(text, faster);
  const std::string found = expect(1, "kiln bench records --against " + faster.string() + globals(folder));
  CHECK_MESSAGE(contains(found, "than in the file compared with"), found);
}

TEST_CASE("a split count that was clamped to one is found once a wider launch is faster, and only then") {
  const TemporaryFolder folder;
  const std::string device_class = value_of(expect(0, "kiln devices --json"), "device_class");
  std::ofstream(folder / "clamped.jsonl")
      << R"({"key":"gemm@2 | m=pow2:16 n=exact:256 k=exact:4096 | dtype=bf16 w_dtype=bf16 out=bf16 layout=nt activation=none residual=none scaling=none accumulate=no | )"
      << device_class << R"( | cold","op":"gemm","revision":2,"device_class":")" << device_class
      << R"(","regime":"cold","bucket":"m=16 n=256 k=4096 dtype=bf16 w_dtype=bf16 out=bf16 layout=nt activation=none residual=none scaling=none accumulate=no","baseline_ns":1e9,)"
      << R"("choices":[{"role":"fastest","sizes":"m=9..16","implementation":"mma",)"
      << R"("config":"tile_m=16 tile_n=32 warps=2 tile_k=64 stages=6 splits=1 group=8 pdl=0","cost_ns":1e9,"low_ns":1e9,"high_ns":1e9,)"
      << R"("samples":41,"source_digest":")" << std::string(64, '0') << R"(","compiler":"none"}],)"
      << R"("provenance":{"kiln_version":"0.1.0","device_name":"a fake","driver_version":13000,)"
      << R"("strategy":"exhaustive","unix_seconds":1},"candidates":[]})" << '\n';
  const std::string base = " --base " + (folder / "clamped.jsonl").string() + globals(folder);
  const std::string narrow =
      "gemm_mma<kiln::bf16, (kiln::gemm::Layout)0, kiln::gemm::Ending<kiln::bf16, (kiln::gemm::Activation)0, "
      "(kiln::gemm::Residual)0, (kiln::gemm::Scaling)0, (kiln::gemm::Accumulate)0>, 16, 32, 64, 2, 6, false";
  const std::string others =
      "; kernel slow 500 gemm_wgmma; kernel slow 500 gemm_stream' kiln bench records";  // none beats mma
  const std::string found = expect(1, "FAKE_CUDA='kernel slow 50 " + narrow + others + base);
  CHECK_MESSAGE(
      contains(
          found,
          "idle: 8 blocks on 132 multiprocessors, so 124 have none; mma tile_m=16 tile_n=32 warps=2 tile_k=64 stages=6 splits="),
      found);
  CHECK_MESSAGE(contains(found, "x as long"), found);
  const std::string explained = expect(0, "kiln explain gemm m=16 n=256 k=4096 dtype=bf16" + base);
  CHECK_MESSAGE(contains(explained, "8 blocks on 132 multiprocessors, so 124 have none; mma tile_m=16 tile_n=32"),
                explained);
  CHECK_FALSE(contains(expect(0, "kiln explain gemm m=4096 n=4096 k=4096 dtype=bf16" + base), " have none"));
  const std::string wide =
      "gemm_mma<kiln::bf16, (kiln::gemm::Layout)0, kiln::gemm::Ending<kiln::bf16, (kiln::gemm::Activation)0, "
      "(kiln::gemm::Residual)0, (kiln::gemm::Scaling)0, (kiln::gemm::Accumulate)0>, 16, 32, 64, 2, 6, true";
  const std::string none = expect(0, "FAKE_CUDA='kernel slow 50 " + wide + others + base);
  CHECK_MESSAGE(contains(none, "8 blocks, and more are no faster"), none);
}

TEST_CASE("regret compares a bucket's config with one tuned for the length, by policy, and keeps only the buckets'") {
  const TemporaryFolder folder;
  const std::string sizes = "kiln bench regret scale rows=64 cols=65..200 dtype=f32 --lengths 3 --seed 5 ";
  const std::string printed = expect(0, sizes + "--policy pow2 --policy edges:100" + globals(folder));
  CHECK_MESSAGE(contains(printed, "edges(100)"), printed);
  CHECK_MESSAGE(contains(printed, "rows=64 cols=129 dtype=f32"), printed);  // right after an edge
  CHECK_MESSAGE(contains(printed, "no config of the record is legal here: the default serves"),
                printed);  // 129 is no multiple of 4
  CHECK(contains(printed, "64..255"));
  const std::string kept = expect(0, "kiln cache ls --json" + globals(folder));
  CHECK_MESSAGE(contains(kept, "cols=pow2:128"), kept);
  CHECK_FALSE(contains(kept, "edges"));
  CHECK_FALSE(contains(kept, "exact"));
  const std::string json = expect(0, sizes + "--json" + globals(folder));
  const std::size_t after_edge = json.find("\"length\":129,");
  REQUIRE_MESSAGE(after_edge != std::string::npos, json);
  CHECK(std::stod(value_of(json.substr(after_edge), "regret")) >
        0.1);  // of the fake's virtual clock: the default takes 1.7 times
  CHECK_MESSAGE(contains(json, "\"event\":\"summary\",\"policy\":\"pow2\",\"from\":null"), json);
}

}  // namespace e2e
