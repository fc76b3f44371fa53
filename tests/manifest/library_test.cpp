// A manifest that names a library in place of kernels.
#include <doctest/doctest.h>

#include "kiln/error.hpp"
#include "manifest/variant.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

constexpr const char* product_op = R"([op]
summary = "y = x w"
revision = 1
[axes]
m = { bucket = "pow2", max = 4096, on_device = true }
n = { bucket = "exact", max = 4096 }
k = { bucket = "exact", max = 4096 }
[types]
dtype = ["bf16", "f32"]
[choices]
layout = ["n", "t"]
[tensors]
x = { shape = ["m", "k"], dtype = "dtype", fill = "normal" }
w = { shape = ['layout == "t" ? n : k', 'layout == "t" ? k : n'], dtype = "dtype", fill = "normal" }
b = { shape = ["n"], dtype = "dtype", fill = "normal", optional = true }
y = { shape = ["m", "n"], dtype = "dtype", output = true }
[reference]
source = "reference.cuh"
[[reference.pass]]
kernel = "product<{dtype}>"
grid = ["m"]
block = ["32"]
args = ["x", "w", "y", "m", "n", "k"]
)";

constexpr const char* library_manifest = R"(library = "cublaslt"
requires = "sm >= 80"
[constraints]
all = ["m % 8 == 0"]
[align]
x = "16"
[matmul]
a = "x"
b = "w"
d = "y"
bias = "b"
transpose_b = 'layout == "t"'
workspace = "1024"
)";

Op parse(const std::string& manifest) {
  const std::vector<SourceFile> files{
      {"op.toml", product_op}, {"vendor.toml", manifest}, {"reference.cuh", "// reference"}};
  return parse_op("product", "/ops/product", files);
}

std::string library_refusal(const std::string& manifest) {
  try {
    (void)parse(manifest);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_manifest);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("an implementation of a library has the library's parameters, any value of them, and no default kernel") {
  const Op op = parse(library_manifest);
  const Implementation& vendor = op.implementations.front();
  CHECK(vendor.is_library());
  CHECK(vendor.passes.empty());
  CHECK(op.tensors[static_cast<std::size_t>(vendor.matmul.bias)].name == "b");
  Problem problem;
  problem.axes = {64, 128, 256};
  problem.selections = {0, 1};
  const auto frame = Variant{&vendor}.frame({op, testing::h200()}, problem);
  CHECK(vendor.matmul.transpose_b.evaluate(frame).number == 1);
  CHECK(vendor.matmul.transpose_a.evaluate(frame).number == 0);
  CHECK(vendor.matmul.workspace.evaluate(frame).number == 1024);
  const std::string config = to_string(vendor, vendor.default_config);
  CHECK(config == "algorithm=0 tile=0 stages=0 splits=0 reduction=0 swizzle=0 custom=0 inner=0 cluster=0 extra=0");
  Config another = vendor.default_config;
  another.front() = 66;
  CHECK(parse_config(vendor, to_string(vendor, another)) == another);
  CHECK(!parse_config(vendor, "algorithm=66"));
}

TEST_CASE("a library is eligible where its conditions hold, and its space is its own") {
  const Op op = parse(library_manifest);
  const Implementation& vendor = op.implementations.front();
  Problem problem;
  problem.axes = {64, 128, 256};
  CHECK(!why_not_eligible({op, testing::h200()}, vendor, problem));
  CHECK(search_space({op, testing::h200()}, vendor, problem).empty());
  problem.axes[0] = 4;
  CHECK(why_not_eligible({op, testing::h200()}, vendor, problem)->find("m % 8 == 0") != std::string::npos);
  DeviceFacts old = testing::h200();
  old.values[0] = 75;
  CHECK(why_not_eligible({op, old}, vendor, problem)->find("requires sm >= 80") != std::string::npos);
}

TEST_CASE("matrices of rank 3 are a batch of products, all of the same number") {
  const std::string with_batch =
      testing::replaced(product_op, "m = { bucket", "batch = { bucket = \"pow2\", max = 64 }\nm = { bucket");
  const auto batched = [&](const char* x_shape) {
    std::string text = testing::replaced(with_batch, "[\"m\", \"k\"]", x_shape);
    text = testing::replaced(text, ", on_device = true", "");
    text = testing::replaced(text, "shape = ['layout", "shape = [\"batch\", 'layout");
    text = testing::replaced(text, "[\"n\"]", "[\"batch\", \"n\"]");
    text = testing::replaced(text, "[\"m\", \"n\"]", "[\"batch\", \"m\", \"n\"]");
    const std::vector<SourceFile> files{
        {"op.toml", text}, {"vendor.toml", library_manifest}, {"reference.cuh", "// reference"}};
    return parse_op("product", "/ops/product", files);
  };
  const Op op = batched("[\"batch\", \"m\", \"k\"]");
  CHECK(op.implementations.front().matmul.a == 0);
  CHECK(op.implementations.front().matmul.bias == 2);
  CHECK_THROWS_WITH_AS(batched("[\"m\", \"k\"]"),
                       doctest::Contains("found 'x' as 'a' of [matmul], expected an input of rank 3"), Error);
  CHECK_THROWS_WITH_AS(
      batched("[\"batch + 1\", \"m\", \"k\"]"),
      doctest::Contains("found 'a' of [matmul] as batch + 1 matrices where d is batch, expected as many as d"), Error);
}

TEST_CASE("a mistake in a library's manifest is named with its line") {
  struct Mistake {
    const char* from;
    const char* to;
    const char* message;
  };
  const Mistake mistakes[] = {
      {"\"cublaslt\"", "\"cublas\"", "vendor.toml:1: found the library 'cublas', expected 'cublaslt'"},
      {"requires", "source = \"x.cuh\"\nrequires", "vendor.toml:2: found the unknown key 'source'"},
      {"[align]", "[search]\nall = []\n[align]", "vendor.toml:5: found the unknown key 'search'"},
      {"a = \"x\"\n", "", "no 'a' in [matmul]"},
      {"a = \"x\"", "a = \"b\"", "vendor.toml:8: found 'b' as 'a' of [matmul], expected an input of rank 2"},
      {"d = \"y\"", "d = \"x\"", "vendor.toml:10: found 'x' as 'd' of [matmul], expected an output of rank 2"},
      {"bias = \"b\"", "bias = \"w\"", "vendor.toml:11: found 'w' as 'bias' of [matmul], expected an input of rank 1"},
      {"bias = \"b\"", "a_scale = \"b\"",
       "vendor.toml:11: found 'b' as 'a_scale' of [matmul], expected an input of f32"},
      {"bias = \"b\"", "alpha = \"b\"", "vendor.toml:11: found 'b' as a run-time value of [matmul]"},
      {"'layout == \"t\"'", "\"m > 1\"", "vendor.toml:12: found the axis 'm'"},
      {"workspace =", "wrkspace =", "vendor.toml:13: found the unknown key 'wrkspace' in [matmul]"},
      {"\"m % 8 == 0\"", "\"tile == 0\"", "vendor.toml:4: in a constraint: found the unknown name 'tile'"},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string message = library_refusal(testing::replaced(library_manifest, mistake.from, mistake.to));
    CAPTURE(message);
    CHECK(message.find(mistake.message) != std::string::npos);
  }
}
