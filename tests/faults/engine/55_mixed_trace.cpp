// Traces whose problems differ in types, and launches of a trace that fail.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

/// An op whose kernel reads where its positions say: outside of its row count is an illegal address.
std::string gather_op(const TemporaryFolder& folder) {
  const fs::path op = folder / "ops/gather";
  fs::create_directories(op);
  write(op / "op.toml", R"(
[op]
summary = "y = table[positions]"
revision = 1
implementations = ["plain"]
[axes]
rows = { bucket = "pow2", max = 4096 }
[types]
dtype = ["f32", "f64"]
index = ["i64", "i32"]
[tensors]
table     = { shape = ["rows"], dtype = "dtype" }
positions = { shape = ["rows"], dtype = "index", fill = "index" }
y         = { shape = ["rows"], dtype = "dtype", output = true }
[tolerance]
f32 = { relative = 1e-6, absolute = 1e-7 }
f64 = { relative = 1e-6, absolute = 1e-7 }
[reference]
source = "gather.cuh"
[[reference.pass]]
kernel = "gather_rows<{dtype}, {index}>"
grid   = ["1"]
block  = ["32"]
args   = ["table", "positions", "y", "rows"]
)");
  write(op / "plain.toml", R"(
summary = "one block"
source  = "gather.cuh"
[[pass]]
kernel = "gather_rows<{dtype}, {index}>"
grid   = ["1"]
block  = ["32"]
args   = ["table", "positions", "y", "rows"]
)");
  write(op / "gather.cuh", R"(
template <typename T, typename Index>
__global__ void gather_rows(const T* table, const Index* positions, T* y, long long rows) {
  for (long long i = threadIdx.x; i < rows; i += 32) y[i] = table[positions[i]];
}
)");
  return " --templates " + (folder / "ops").string() + " --overlay " + (folder / "overlay.kiln").string() + " ";
}

/// Replays `trace` under these settings of the fake driver; a comment comes first, so that launch N is on line N + 1.
std::string replay(const TemporaryFolder& folder, int status, const std::string& words, const std::string& trace,
                   const std::string& machine = "") {
  write(folder / "a.trace", "# as recorded\n" + trace);
  return expect(status, "FAKE_CUDA='" + machine + "' '" KILN_COMMAND "' replay " + (folder / "a.trace").string() +
                            " --policy nearest " + words);
}

constexpr const char* same_bucket =
    "scale rows=64 cols=128 dtype=f32\nscale rows=63 cols=128 dtype=f32\nscale rows=62 cols=128 dtype=f32\n"
    "scale rows=61 cols=128 dtype=f32\n";

}  // namespace

TEST_CASE("fault 55: each launch of a trace gets tensors of its own types, with indices within its own sizes") {
  const TemporaryFolder folder;
  const std::string globals = gather_op(folder);
  for (const char* order : {"i32 f32 i64 f32", "i64 f32 i32 f32", "i32 f64 i64 f32", "i64 f64 i32 f64"}) {
    std::istringstream words(order);
    std::string trace, index, dtype;
    while (words >> index >> dtype)
      for (const char* rows : {"4", "3", "1000"})
        trace += "gather rows=" + std::string(rows) + " index=" + index + " dtype=" + dtype + "\n";
    const std::string said = replay(folder, 0, "--verify" + globals, trace + trace);
    CHECK_MESSAGE(contains(said, "6 of them distinct"), said);
  }
  tally(55, 4, "traces of several types");
}

TEST_CASE("fault 55: a launch of a trace that fails is named by its number, line, op and problem") {
  const TemporaryFolder folder;
  const std::string globals = e2e::globals(folder);
  tuned_overlay(folder);
  const auto said = [&](const std::string& machine, const std::string& words = "") {
    return replay(folder, 5, globals + words, same_bucket, machine);
  };
  // Refused by the driver.
  CHECK(contains(said("fail cuLaunchKernelEx CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES at 3"),
                 "launch 3 (line 4), scale rows=62 cols=128 dtype=f32: "));
  // On the device: the first of a bucket is waited for by itself.
  CHECK(contains(said("kernel fault scale_tiled"), "launch 1 (line 2), scale rows=64 cols=128 dtype=f32: "));
  // A device that failed says so to whoever asks next.
  const std::string range = said("fail cuEventSynchronize CUDA_ERROR_ILLEGAL_ADDRESS");
  CHECK_MESSAGE(contains(range, "one of the launches 2 to 4 failed on the device"), range);
  CHECK_MESSAGE(contains(range, "launch 2 (line 3), scale rows=63"), range);
  CHECK_MESSAGE(contains(range, "launch 4 (line 5), scale rows=61"), range);
  const std::string later = said(
      "fail cuLaunchKernelEx CUDA_ERROR_ILLEGAL_ADDRESS at 4 sticky;"
      "fail cuStreamSynchronize CUDA_ERROR_ILLEGAL_ADDRESS at 2 sticky");
  CHECK_MESSAGE(contains(later, "one of the launches 2 to 3 failed on the device"), later);
  CHECK(contains(said("fail cuLaunchKernelEx CUDA_ERROR_ILLEGAL_ADDRESS at 5", "--verify"), "verifying launch "));
  tally(55, 5, "launches of traces that fail");
}

}  // namespace kiln::faults
