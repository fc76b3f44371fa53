#include "answer/model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "near_fixture.hpp"

using namespace kiln;
using kiln::answer::Estimate;
using kiln::answer::estimate;
using kiln::answer::testing::device_of;
using kiln::answer::testing::h200;

namespace {

// An op that copies rows x cols, one block a row. `pass` is added to its pass, `model` to its [pass.model].
manifest::Op copy_op(const std::string& pass, const std::string& model) {
  const std::string op = R"toml([op]
summary  = "y = x"
revision = 1
[axes]
rows = { bucket = "pow2", max = 4611686018427387904 }
cols = { bucket = "exact", max = 4611686018427387904 }
[types]
dtype = ["f32"]
[tensors]
x = { shape = ["rows", "cols"], dtype = "dtype" }
y = { shape = ["rows", "cols"], dtype = "dtype", output = true }
[tolerance]
f32 = { relative = 0.0, absolute = 0.0 }
[reference]
[[reference.pass]]
kernel = "copy_reference"
grid   = ["rows"]
block  = ["256"]
args   = ["x", "y"]
[cost]
bytes = "8 * rows * cols"
flops = "rows * cols"
)toml";
  const std::string implementation = R"toml([parameters]
threads = [32, 256, 1024]
shared  = [0, 65536, 262144]
[default]
threads = 256
shared  = 0
[[pass]]
kernel = "copy<{threads}>"
grid   = ["rows"]
block  = ["threads"]
args   = ["x", "y"]
)toml" + pass + "\n" + model;
  const std::vector<manifest::SourceFile> files = {
      {"op.toml", op}, {"plain.toml", implementation}, {"plain.cuh", "//"}, {"reference.cuh", "//"}};
  return manifest::parse_op("copy", "/ops/copy", files);
}

Estimate at(const manifest::Op& op, std::int64_t rows, std::int64_t cols, const manifest::DeviceFacts& device = h200(),
            const manifest::Config& config = {256, 0}, Regime regime = Regime::cold_l2) {
  Problem problem;
  problem.axes[0] = rows;
  problem.axes[1] = cols;
  return estimate({op, device, regime}, manifest::Variant{&op.implementations.front(), config}, problem);
}

}  // namespace

TEST_CASE("without a model the op's cost and the geometry make the estimate") {
  const manifest::Op op = copy_op("", "");
  const Estimate large = at(op, 32768, 8192);
  CHECK(large.limit == "memory");
  CHECK(large.blocks == 32768);
  CHECK(large.blocks_per_multiprocessor == 8);  // 2048 threads of a multiprocessor, 256 a block
  CHECK(large.waves == doctest::Approx(32768.0 / (132 * 8)));
  // 2 GiB over a bus of 4.8 TB/s at most, and at least a half of it.
  CHECK(large.ns > 8.0 * 32768 * 8192 / 4800);
  CHECK(large.ns < 2 * 8.0 * 32768 * 8192 / 4800);
  const Estimate smallest = at(op, 1, 1);
  CHECK(smallest.limit == "latency");
  CHECK(smallest.ns > 1000);
  CHECK(smallest.ns < 10000);
}

TEST_CASE("what all blocks read is what the manifest says, and nothing where it does not") {
  CHECK(at(copy_op("", ""), 128, 64).read_bytes == 0);
  CHECK(at(copy_op("", "[pass.model]\noperations = \"rows\"\n"), 128, 64).read_bytes == 0);
  CHECK(at(copy_op("", "[pass.model]\nread_bytes = \"rows * 1000\"\n"), 128, 64).read_bytes == 128000);
  const manifest::Op in_rounds =
      copy_op("", "[pass.model]\nread_bytes = \"rows * 1000\"\ntraffic_bytes = \"rows * 600\"\n");
  CHECK(at(in_rounds, 128, 64).read_bytes == 76800);
  CHECK(at(in_rounds, 128, 64).ns == at(copy_op("", "[pass.model]\nread_bytes = \"rows * 1000\"\n"), 128, 64).ns);
}

TEST_CASE("the residency of blocks is bounded by shared memory, threads and registers") {
  const manifest::Op op = copy_op("shared = \"shared\"", "[pass.model]\nregisters = \"threads > 256 ? 64 : 40\"\n");
  CHECK(at(op, 4096, 4096, h200(), {256, 0}).blocks_per_multiprocessor == 6);      // 65536 / (40 * 256)
  CHECK(at(op, 4096, 4096, h200(), {256, 65536}).blocks_per_multiprocessor == 3);  // 228 KiB / 65 KiB
  CHECK(at(op, 4096, 4096, h200(), {1024, 0}).blocks_per_multiprocessor == 1);     // 65536 / (64 * 1024)
  CHECK(at(op, 4096, 4096, h200(), {32, 0}).blocks_per_multiprocessor == 32);      // most resident blocks
  CHECK(std::isinf(at(op, 4096, 4096, h200(), {256, 262144}).ns));                 // no block of 256 KiB runs
}

TEST_CASE("a last wave that is nearly empty costs nearly as much as a full one") {
  const manifest::Op op = copy_op("shared = \"131072\"", "[pass.model]\noperations = \"rows * 10000000\"\n");
  const double one = at(op, 132, 64).ns, one_and_a_block = at(op, 133, 64).ns, two = at(op, 264, 64).ns;
  CHECK(one_and_a_block > 1.8 * one);
  CHECK(one_and_a_block == doctest::Approx(two).epsilon(0.05));
}

TEST_CASE("what is scarcest names the limit") {
  const auto limit = [](const std::string& model) {
    return std::string(at(copy_op("", "[pass.model]\nmemory_bytes = 0\n" + model), 8192, 8192).limit);
  };
  CHECK(limit("operations = \"rows * cols * 1000\"") == "computation");
  CHECK(limit("shared_bytes = \"rows * cols * 100\"") == "shared memory");
  CHECK(limit("read_bytes = \"rows * cols * 100\"") == "L2");
  CHECK(limit("read_bytes = \"rows * cols * 4\"\nbytes_in_flight = 128") == "latency");
}

TEST_CASE("operations of the tensor cores take a fraction of the time of ordinary ones") {
  const auto time = [](const char* unit) {
    return at(copy_op("", std::string("[pass.model]\noperations = \"rows * cols * 1000\"\nunit = \"") + unit + "\"\n"),
              8192, 8192)
        .ns;
  };
  CHECK(time("fma") > 5 * time("mma"));
  CHECK(time("mma") > time("wgmma"));
  CHECK(time("instruction") > 1.5 * time("fma"));
}

TEST_CASE(
    "what many multiprocessors read at once is limited by their ports alone, and what each reads for itself by L2 as well") {
  const auto time = [](const char* bytes) {
    return at(copy_op("", std::string("[pass.model]\nread_bytes = \"rows * cols * 100\"\nmemory_bytes = \"") + bytes +
                              "\"\n"),
              8192, 8192, h200(), {256, 0}, Regime::hot_l2)
        .ns;
  };
  CHECK(time("rows * cols * 100") > 1.3 * time("rows * cols"));
}

TEST_CASE("each round trip costs a block a latency") {
  const auto time = [](const char* times) {
    return at(copy_op("", std::string("[pass.model]\nround_trips = ") + times + "\n"), 132, 4096).ns;
  };
  CHECK(time("1") == doctest::Approx(at(copy_op("", ""), 132, 4096).ns));
  const double one_more = time("2") - time("1");
  CHECK(one_more > 0);
  CHECK(time("4") == doctest::Approx(time("1") + 3 * one_more));
}

TEST_CASE("clusters of many blocks need a second wave where as many blocks by themselves need none") {
  const auto time = [](const char* blocks) {
    return at(copy_op(std::string("shared = \"131072\"\ncluster = [\"") + blocks + "\"]",
                      "[pass.model]\noperations = \"rows * 10000000\"\n"),
              128, 64)
        .ns;
  };
  CHECK(time("2") == time("1"));
  CHECK(time("4") > 1.8 * time("1"));
  CHECK(time("8") > 1.8 * time("1"));
}

TEST_CASE("more work never takes less time, nor does a smaller device") {
  const manifest::Op op = copy_op("", "");
  double before = 0;
  for (std::int64_t rows = 1; rows <= 65536; rows *= 2) {
    const double now = at(op, rows, 4096).ns;
    CHECK(now >= before);
    CHECK(at(op, rows, 4096, device_of("sm_90/mp66/l2_62914560/smem_232448/bus_3008")).ns >= now);
    before = now;
  }
}

TEST_CASE("a problem that stays in L2 takes less time in the regime that leaves it there") {
  const manifest::Op op = copy_op("", "");
  CHECK(at(op, 1024, 1024, h200(), {256, 0}, Regime::hot_l2).ns < at(op, 1024, 1024).ns);
  CHECK(at(op, 32768, 8192, h200(), {256, 0}, Regime::hot_l2).ns == at(op, 32768, 8192).ns);  // it does not fit
}

TEST_CASE("a further pass costs its launch and what its model says; one that is left out costs nothing") {
  const std::string second = "[[pass]]\nkernel = \"again\"\ngrid = [\"rows\"]\nblock = [\"256\"]\nargs = []\n";
  const double one = at(copy_op("", ""), 4096, 4096).ns;
  CHECK(at(copy_op("", second + "when = 0\n"), 4096, 4096).ns == one);
  const double launched = at(copy_op("", second), 4096, 4096).ns;
  CHECK(launched > one);
  CHECK(launched < 1.2 * one);
  CHECK(at(copy_op("", second + "[pass.model]\nmemory_bytes = \"8 * rows * cols\"\n"), 4096, 4096).ns > 1.5 * one);
}

TEST_CASE("an estimate over numbers that overflow is infinite") {
  CHECK(std::isinf(at(copy_op("", ""), std::int64_t{1} << 61, 4096).ns));
}

TEST_CASE("an architecture that came later is taken for the last known one") {
  const manifest::Op op = copy_op("", "");
  CHECK(at(op, 4096, 4096, device_of("sm_91/mp132/l2_62914560/smem_232448/bus_6016")).ns == at(op, 4096, 4096).ns);
}

TEST_CASE("every config of the built-in ops at a model's sizes has an estimate") {
  for (const manifest::Op& op : manifest::load_ops({})) {
    for (const std::int64_t rows : {1, 64, 4096}) {
      Problem problem;
      for (std::size_t i = 0; i < op.axes.size(); ++i) problem.axes[i] = i == 0 ? rows : 4096;
      for (const manifest::Implementation& implementation : op.implementations) {
        for (const manifest::Config& config : manifest::search_space({op, h200()}, implementation, problem)) {
          const Estimate made = estimate({op, h200()}, manifest::Variant{&implementation, config}, problem);
          CAPTURE(op.name + "/" + implementation.name + " " + manifest::to_string(implementation, config));
          REQUIRE(std::isfinite(made.ns));
          REQUIRE(made.ns > 1000);
          REQUIRE(made.blocks_per_multiprocessor >= 1);
        }
      }
    }
  }
}

namespace {

/// Returns the config of gemm for bf16 matrices that the model expects to be fastest.
std::string best_of_gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  const std::vector<manifest::Op> ops = manifest::load_ops({});
  const manifest::Op& op = *std::ranges::find(ops, "gemm", &manifest::Op::name);
  Problem problem;
  problem.axes = {m, n, k};
  std::string best;
  double best_ns = std::numeric_limits<double>::infinity();
  for (const manifest::Implementation& implementation : op.implementations) {
    if (implementation.is_library()) continue;
    for (const manifest::Config& config : manifest::search_space({op, h200()}, implementation, problem)) {
      const double ns = estimate({op, h200()}, manifest::Variant{&implementation, config}, problem).ns;
      if (ns >= best_ns) continue;
      best_ns = ns;
      best = implementation.name + " " + manifest::to_string(implementation, config);
    }
  }
  return best;
}

}  // namespace

TEST_CASE("a product of rows between powers of two is expected to be fastest by a tile of their height") {
  const auto has = [](const std::string& config, std::string_view part) { return config.find(part) != config.npos; };
  CHECK(has(best_of_gemm(129, 28672, 4096), "wgmma tile_m=136"));
  CHECK(has(best_of_gemm(208, 28672, 4096), "wgmma tile_m=208"));
  CHECK(has(best_of_gemm(1, 4096, 4096), "stream"));
  CHECK(has(best_of_gemm(64, 4096, 4096), "wgmma tile_m=64 tile_n=32"));
  CHECK(has(best_of_gemm(100, 4096, 4096), "wgmma tile_m=64"));  // few columns: small tiles, as measured
}
