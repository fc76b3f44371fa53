// What stands for a type or choice that a caller leaves out, and what depends on those that a problem has.
#include <doctest/doctest.h>

#include "kiln/error.hpp"
#include "manifest/problem.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

testing::Folder with(std::string_view from, std::string_view to) {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, from, to);
  return folder;
}

/// An op whose y may be of another type than x, and is summed into when the choice says so.
testing::Folder two_types() {
  testing::Folder folder = with("dtype = [\"bf16\", \"f32\"]",
                                R"(dtype = ["bf16", "f32", "e4m3"]
out = { of = ["f32", "bf16"], default = { like = "dtype", e4m3 = "bf16" } })");
  folder.op =
      testing::replaced(folder.op, "mode = [\"plain\", \"saturate\"]",
                        "mode = { of = [\"plain\", \"saturate\"], default = \"saturate\" }\nsum = [\"no\", \"yes\"]");
  folder.op = testing::replaced(
      folder.op, "y = { shape = [\"rows\", \"cols\"], dtype = \"dtype\", output = true }",
      "y = { shape = [\"rows\", \"cols\"], dtype = \"out\", output = true, initialised = 'sum == \"yes\"' }");
  folder.op = testing::replaced(
      folder.op, "f32  = { relative = 1e-5, absolute = 1e-6 }",
      R"(f32 = [{ when = 'dtype == "e4m3"', relative = 0.1, absolute = 0 }, { relative = 1e-5, absolute = 1e-6 }])");
  return folder;
}

std::string problem_of(const Op& op, std::vector<Setting> settings) {
  settings.push_back({"rows", "4"});
  settings.push_back({"cols", "8"});
  return to_string(op, make_problem(op, settings));
}

std::string parse_refusal(const testing::Folder& folder) {
  try {
    static_cast<void>(folder.parse());
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

void check_refused(std::string_view from, std::string_view to, const char* wanted) {
  const std::string message = parse_refusal(with(from, to));
  CAPTURE(wanted);
  CHECK_MESSAGE(message.find(wanted) != std::string::npos, message);
}

constexpr std::string_view types = "dtype = [\"bf16\", \"f32\"]";

}  // namespace

TEST_CASE("a type that is left out is that of another one, or what the manifest says instead") {
  const Op op = two_types().parse();
  CHECK(problem_of(op, {}) == "rows=4 cols=8 dtype=bf16 out=bf16 mode=saturate sum=no");
  CHECK(problem_of(op, {{"dtype", "f32"}}) == "rows=4 cols=8 dtype=f32 out=f32 mode=saturate sum=no");
  CHECK(problem_of(op, {{"dtype", "e4m3"}}) == "rows=4 cols=8 dtype=e4m3 out=bf16 mode=saturate sum=no");
  CHECK(problem_of(op, {{"out", "f32"}, {"mode", "plain"}}) == "rows=4 cols=8 dtype=bf16 out=f32 mode=plain sum=no");
}

TEST_CASE("a bucket that was written before an op had a type is read with its default") {
  const Op op = two_types().parse();
  const auto bucket = parse_bucket(op, "rows=4 cols=8 dtype=e4m3 mode=plain");
  REQUIRE(bucket.has_value());
  CHECK(to_string(op, *bucket) == "rows=4 cols=8 dtype=e4m3 out=bf16 mode=plain sum=no");
}

TEST_CASE("a mistake in a default is named with what could stand there") {
  check_refused(types, "dtype = { of = [\"bf16\", \"f32\"], default = \"f16\" }",
                "op.toml:8: found 'f16' as the default of 'dtype' (did you mean 'bf16'?), expected 'bf16' or 'f32'");
  check_refused(types, "dtype = { default = \"f32\" }", "found no 'of' in 'dtype', expected one");
  check_refused(types, "dtype = { of = [\"bf16\"], defautl = \"bf16\" }", "did you mean 'default'?");
  check_refused(
      types, "dtype = [\"bf16\", \"e5m2\"]\nout = { of = [\"bf16\", \"f32\"], default = \"dtype\" }",
      "op.toml:9: found no default of 'out' where 'dtype' is e5m2, expected { like = \"dtype\", e5m2 = a word }, one "
      "of 'bf16' or 'f32'");
  check_refused(types, "dtype = [\"bf16\"]\nout = { of = [\"f32\"], default = { like = \"dtype\", bf16 = \"f16\" } }",
                "op.toml:9: found 'f16' as the default of 'out', expected 'f32'");
  check_refused(types, "dtype = [\"bf16\"]\nout = { of = [\"bf16\"], default = { like = \"dtype\", bf61 = \"bf16\" } }",
                "op.toml:9: found 'bf61' in the default of 'out', expected 'like', or a value of 'dtype': 'bf16'");
  check_refused(
      types, "out = { of = [\"bf16\"], default = { like = \"dtype\" } }\ndtype = [\"bf16\"]",
      "op.toml:8: found 'dtype' as the default of 'out', expected a word, since no type or choice stands before it");
}

TEST_CASE("an output is read where types and choices say so, and under a tolerance that they choose") {
  const Op op = two_types().parse();
  const auto frame = [&](std::vector<Setting> settings) {
    settings.push_back({"rows", "4"});
    settings.push_back({"cols", "8"});
    return frame_of({op, testing::h200()}, make_problem(op, settings));
  };
  CHECK(Op::is_initialised(op.tensors[1], frame({{"sum", "yes"}})));
  CHECK_FALSE(Op::is_initialised(op.tensors[1], frame({{"sum", "no"}})));
  manifest::Tensor output;
  output.dtype = DType::f32;
  CHECK(op.tolerance_of(output, frame({{"dtype", "e4m3"}})).relative == 0.1);
  CHECK(op.tolerance_of(output, frame({{"dtype", "f32"}})).relative == 1e-5);
  output.dtype = DType::f16;
  CHECK(op.tolerance_of(output, frame({})).relative == 0);
  const std::string y = "dtype = \"dtype\", output = true }";
  check_refused(y, "dtype = \"dtype\", output = true, initialised = \"rows > 1\" }", "'initialised' of 'y'");
  check_refused("x = { shape", "x = { initialised = true, shape", "'initialised' on 'x', expected it on outputs only");
  check_refused("f32  = { relative = 1e-5,", "f32 = { when = \"sm > 80\", relative = 1e-5,",
                "found the tolerance of 'f32' with nothing for what is left, expected a last one without 'when'");
}

TEST_CASE("offsets say what they end at, and are whole numbers") {
  const std::string at = "[tolerance]";
  testing::Folder folder =
      with(at, "cuts = { shape = [5], dtype = \"i32\", fill = \"offsets\", last = \"rows\" }\n[tolerance]");
  CHECK(folder.parse().tensors[2].last->text() == "rows");
  check_refused(at, "cuts = { shape = [5], dtype = \"i32\", fill = \"offsets\" }\n[tolerance]",
                "found 'cuts' without 'last', expected fill = \"offsets\" and 'last'");
  check_refused(at, "cuts = { shape = [5], dtype = \"i32\", last = \"rows\" }\n[tolerance]",
                "found 'cuts' with 'last'");
  check_refused(at, "cuts = { shape = [5], dtype = \"f32\", fill = \"offsets\", last = 3 }\n[tolerance]",
                "found offsets as the fill of 'cuts', expected a dtype of i32 or i64");
}
