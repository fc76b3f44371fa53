// A small op, so that the built-in ones may change without these tests.
#pragma once

#include <string>
#include <vector>

#include "manifest/op.hpp"

namespace kiln::testing {

inline std::vector<manifest::SourceFile> sample_files() {
  return {
      {"op.toml", R"toml([op]
summary  = "y = 2 x"
revision = 1
[axes]
rows = { bucket = "pow2", max = 4096 }
cols = { bucket = "exact", max = 1024, multiple_of = 8 }
[types]
dtype = ["bf16", "f32"]
[runtime]
bias   = "f32"
stride = { type = "i64", default = "cols", min = "cols" }
[tensors]
x = { shape = ["rows", "cols"], dtype = "dtype", fill = "normal" }
y = { shape = ["rows", "cols"], dtype = "dtype", output = true }
[tolerance]
bf16 = { relative = 8e-3, absolute = 1e-3 }
f32  = { relative = 1e-5, absolute = 1e-6 }
[reference]
source = "reference.cuh"
[[reference.pass]]
kernel = "twice_reference<{dtype}>"
grid   = ["rows"]
block  = ["256"]
args   = ["x", "y", "cols"]
[cost]
bytes = "2 * rows * cols * sizeof(dtype)"
flops = "rows * cols"
)toml"},
      {"plain.toml", R"toml(summary = "a block a row"
[parameters]
threads = [64, 128]
[default]
threads = 64
[[pass]]
kernel = "twice<{dtype}, {threads}>"
grid   = ["rows"]
block  = ["threads"]
args   = ["x", "y", "cols"]
)toml"},
      {"plain.cuh", ""},
      {"reference.cuh", ""},
  };
}
inline manifest::Op sample_op() { return manifest::parse_op("twice", "tests", sample_files()); }

/// What() of the Error that `act` throws, or "nothing was thrown".
template <class Act>
std::string message_of(Act act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace kiln::testing
