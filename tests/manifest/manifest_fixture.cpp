#include "manifest_fixture.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "kiln/error.hpp"

namespace kiln::manifest::testing {

Folder scale_folder() {
  return {R"toml([op]
summary  = "y = x * factor"
revision = 3
[axes]
rows = { bucket = "pow2", max = 4096 }
cols = { bucket = "exact", max = 65536, multiple_of = 8 }
[types]
dtype = ["bf16", "f32"]
[choices]
mode = ["plain", "saturate"]
[runtime]
factor = "f32"
stride = { type = "i64", default = "cols", min = "cols" }
[tensors]
x = { shape = ["rows", "cols"], strides = ["stride", "1"], dtype = "dtype" }
y = { shape = ["rows", "cols"], dtype = "dtype", output = true }
[tolerance]
bf16 = { relative = 8e-3, absolute = 1e-3 }
f32  = { relative = 1e-5, absolute = 1e-6 }
[reference]
[[reference.pass]]
kernel = "scale_reference<{dtype}>"
grid   = ["rows"]
block  = ["256"]
args   = ["x", "y", "rows", "cols", "stride", "factor"]
[cost]
bytes = "2 * rows * cols * sizeof(dtype)"
flops = "rows * cols"
)toml",
          R"toml(summary  = "rows in blocks"
requires = "sm >= 80"
options  = ["--use_fast_math", "--maxrregcount=64"]
[parameters]
threads = [128, 256, 2048]
vector  = [2, 4, 8]
[constraints]
all = ["vector * sizeof(dtype) <= 16", "threads <= 1024", "cols % vector == 0"]
[align]
x = "vector * sizeof(dtype)"
[default]
threads = 256
vector  = 4
[workspace]
partial = { bytes = "rows * 4", zeroed = true }
[[pass]]
kernel  = "scale_fast<{dtype}, {threads}, {vector * 2}, Mode::{mode}>"
grid    = ["ceil_div(rows, 4)", "2"]
block   = ["threads"]
cluster = [2]
shared  = "threads * 4"
when    = 'mode == "plain"'
args    = ["x", "y", "partial", "rows", "factor", { value = "ceil_div(rows, 2)", type = "i32" }, { tma = "x", box = [16, "64"], swizzle = 128 }]
)toml"};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(text.find(from, at + 1) == std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string text_of(const Mistake& mistake) {
  return fmt::format("{}:{}: {}{}{}", mistake.file, mistake.line, mistake.found,
                     mistake.expected.empty() ? "" : ", expected ", mistake.expected);
}

std::string refusal_of(const Folder& folder) {
  std::vector<Mistake> mistakes;
  (void)parse_op("scale", "/ops/scale", folder.files(), mistakes);
  try {
    (void)folder.parse();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_manifest);
    REQUIRE(!mistakes.empty());
    CHECK(text_of(mistakes.front()) == error.what());
    return error.what();
  }
  CHECK(mistakes.empty());
  return "accepted";
}

}  // namespace kiln::manifest::testing
