// An op with a small space and records of it, for tests of near buckets.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "manifest/key.hpp"
#include "manifest/problem.hpp"
#include "manifest/region.hpp"
#include "store/record.hpp"

namespace kiln::answer::testing {

inline constexpr const char* h200_class = "sm_90/mp132/l2_62914560/smem_232448/bus_6016";
inline constexpr const char* h100_class = "sm_90/mp132/l2_52428800/smem_232448/bus_5120";
inline constexpr const char* a100_class = "sm_80/mp108/l2_41943040/smem_166912/bus_5120";

/// They live as long as the tests: buckets refer to them.
inline const manifest::DeviceFacts& device_of(const std::string& device_class) {
  static std::map<std::string, manifest::DeviceFacts> known;
  return known.try_emplace(device_class, *manifest::DeviceFacts::from_device_class(device_class)).first->second;
}
inline const manifest::DeviceFacts& h200() { return device_of(h200_class); }

/// An op over rows x cols. `threads` (32 to 1024) times `vector` (1 to 8) is at most the row's length. A vector of 8 needs even rows.
inline manifest::Op rows_op(bool with_model = true) {
  std::vector<manifest::SourceFile> files = {{"op.toml", R"toml([op]
summary  = "y = x"
revision = 2
[axes]
rows = { bucket = "pow2", max = 1048576 }
cols = { bucket = "exact", max = 1048576 }
[types]
dtype = ["f32", "bf16"]
[tensors]
x = { shape = ["rows", "cols"], dtype = "dtype" }
y = { shape = ["rows", "cols"], dtype = "dtype", output = true }
[tolerance]
f32  = { relative = 0.0, absolute = 0.0 }
bf16 = { relative = 0.0, absolute = 0.0 }
[reference]
[[reference.pass]]
kernel = "reference"
grid   = ["rows"]
block  = ["256"]
args   = ["x", "y"]
[cost]
bytes = "2 * rows * cols * sizeof(dtype)"
flops = "rows * cols"
)toml"},
                                             {"fast.toml", R"toml([parameters]
threads = [32, 64, 128, 256, 512, 1024]
vector  = [1, 2, 4, 8]
[constraints]
all = ["threads * vector <= cols", "vector < 8 || rows % 2 == 0"]
[default]
threads = 32
vector  = 1
[[pass]]
kernel = "fast<{threads}, {vector}>"
grid   = ["rows"]
block  = ["threads"]
args   = ["x", "y"]
[pass.model]
operations      = "rows * threads * (100 + ceil_div(cols, threads * vector) * (8 + vector))"
unit            = "instruction"
bytes_in_flight = "threads * vector * sizeof(dtype)"
)toml"},
                                             {"fast.cuh", "//"},
                                             {"reference.cuh", "//"}};
  if (!with_model) {
    const std::string whole = files[1].text.str();
    files[1].text = whole.substr(0, whole.find("[pass.model]"));
  }
  return manifest::parse_op("rows", "/ops/rows", files);
}

inline Problem sized(std::int64_t rows, std::int64_t cols) {
  Problem problem;
  problem.axes[0] = rows;
  problem.axes[1] = cols;
  return problem;
}

inline store::Record record_of(const manifest::Op& op, const Problem& bucket, const std::string& config, double cost_ns,
                               const std::string& device_class = h200_class) {
  store::Record record;
  record.key = manifest::Bucket({op, device_of(device_class), Regime::cold_l2}, bucket).key();
  record.op = op.name;
  record.revision = op.revision;
  record.device_class = device_class;
  record.regime = manifest::to_string(Regime::cold_l2);
  record.bucket = manifest::to_string(op, bucket);
  record.baseline_ns = cost_ns;
  store::Choice choice;
  choice.sizes = manifest::to_string(op, manifest::whole_of(op, bucket));
  choice.implementation = "fast";
  choice.config = config;
  choice.cost_ns = choice.low_ns = choice.high_ns = cost_ns;
  choice.samples = 9;
  record.choices.push_back(choice);
  return record;
}

/// Returns a candidate timed at the upper edge of a bucket of `rows`.
inline store::TriedCandidate candidate_of(std::int64_t rows, const std::string& config, double cost_ns) {
  store::TriedCandidate candidate;
  candidate.sizes = "rows=" + std::to_string(rows);
  candidate.implementation = "fast";
  candidate.config = config;
  candidate.cost_ns = candidate.low_ns = candidate.high_ns = cost_ns;
  candidate.samples = 9;
  return candidate;
}

}  // namespace kiln::answer::testing
