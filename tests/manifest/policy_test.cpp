// Axes whose bucket policy follows from types and choices.
#include <doctest/doctest.h>

#include <tuple>

#include "manifest/key.hpp"
#include "manifest/problem_set.hpp"
#include "manifest/region.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

constexpr std::uint8_t plain = 0, saturate = 1;

testing::Folder with_cols(std::string_view bucket) {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, "cols = { bucket = \"exact\"", "cols = { bucket = " + std::string(bucket));
  return folder;
}

/// cols is in powers of two for mode=saturate, else exact.
Op by_mode() {
  return with_cols(R"([{ when = 'mode == "saturate"', policy = "pow2" }, { policy = "exact" }])").parse();
}

Problem sized(std::int64_t rows, std::int64_t cols, std::uint8_t mode) {
  Problem problem;
  problem.axes = {rows, cols};
  problem.selections = {0, mode};
  return problem;
}

}  // namespace

TEST_CASE("an axis's bucket policy is the first whose 'when' holds, and keys, buckets and regions go by it") {
  const Op op = by_mode();
  CHECK(policy_text(op.axes[1]) == "pow2 when mode == \"saturate\", else exact");
  const auto key = [&](std::uint8_t mode) {
    return Bucket({op, testing::h200(), Regime::cold_l2}, bucket_of(op, sized(500, 3000, mode))).key();
  };
  CHECK(key(plain).starts_with("scale@3 | rows=pow2:512 cols=exact:3000 | dtype=bf16 mode=plain |"));
  CHECK(key(saturate).starts_with("scale@3 | rows=pow2:512 cols=pow2:4096 | dtype=bf16 mode=saturate |"));
  CHECK(is_exact(op, 1, sized(500, 3000, plain)));
  CHECK(!is_exact(op, 1, sized(500, 3000, saturate)));
  CHECK(to_string(op, whole_of(op, sized(512, 4096, plain))) == "rows=257..512");
  CHECK(to_string(op, whole_of(op, sized(512, 4096, saturate))) == "rows=257..512 cols=2056..4096");
  const Region low{sized(257, 2056, saturate), sized(300, 3000, saturate)};
  CHECK(low.contains(op, sized(300, 3000, saturate)));
  CHECK(!low.contains(op, sized(300, 3008, saturate)));
  CHECK(parse_region(op, sized(512, 4096, saturate), "rows=257..300 cols=2056..3000") == low);
  CHECK(!parse_region(op, sized(512, 4096, plain), "rows=257..300 cols=2056..3000"));
}

TEST_CASE("keys of types and choices for which an axis is exact are those of an axis that always is") {
  const Op always = testing::scale_folder().parse(), op = by_mode();
  const Problem bucket = sized(512, 3000, plain);
  CHECK(Bucket({op, testing::h200(), Regime::hot_l2}, bucket).key() ==
        Bucket({always, testing::h200(), Regime::hot_l2}, bucket).key());
}

TEST_CASE("a range of sizes names the buckets that each choice has in it") {
  const Op op = by_mode();
  ProblemSet set;
  set.axes = {{{8, 8}}, {{8, 64}}};
  set.selections = {{0}, {plain}};
  CHECK(buckets_of(op, set).size() == 8);
  set.selections = {{0}, {saturate}};
  CHECK(buckets_of(op, set).size() == 4);
  set.selections = {{0}, {plain, saturate}};
  CHECK(buckets_of(op, set).size() == 12);
}

TEST_CASE("of several conditions the first that holds counts, and types may stand in them") {
  const Op op =
      with_cols(
          R"([{ when = 'sizeof(dtype) == 4', policy = "edges", edges = [64] }, { when = 'mode == "saturate"', policy = "pow2" }, { policy = "exact" }])")
          .parse();
  CHECK(policy_text(op.axes[1]) == "edges(64) when sizeof(dtype) == 4, pow2 when mode == \"saturate\", else exact");
  for (const auto& [dtype, mode, cols] : {std::tuple(0, plain, 3000), {0, saturate, 4096}, {1, saturate, 65536}}) {
    Problem problem = sized(8, 3000, mode);
    problem.selections[0] = static_cast<std::uint8_t>(dtype);
    CHECK(bucket_of(op, problem).axes[1] == cols);
  }
}

TEST_CASE("a mistake in a list of buckets is named with its line") {
  const auto says = [](const testing::Folder& folder, std::string_view wanted) {
    const std::string message = testing::refusal_of(folder);
    CAPTURE(message);
    CAPTURE(wanted);
    CHECK(message.find(wanted) != std::string::npos);
  };
  says(with_cols("[]"), "op.toml:6: found buckets of axis 'cols' with nothing for what is left, expected a last one");
  says(with_cols(R"([{ when = 'mode == "saturate"', policy = "pow2" }])"), "expected a last one without 'when'");
  says(with_cols(R"([{ policy = "pow2" }, { policy = "exact" }])"),
       "found a bucket of axis 'cols' without 'when' before another, expected it last");
  says(with_cols(R"({ when = 'mode == "saturate"', policy = "pow2" })"),
       "found 'when' of the only bucket of axis 'cols', expected a list of buckets in [ ]");
  says(with_cols(R"([{ when = 'mode == "saturates"', policy = "pow2" }, { policy = "exact" }])"),
       "op.toml:6: in 'when' of a bucket of axis 'cols': found");
  says(with_cols(R"([{ when = 'rows > 8', policy = "pow2" }, { policy = "exact" }])"),
       "found the axis 'rows', which no device fixes, in 'when' of a bucket of axis 'cols'");
  says(with_cols(R"([{ when = 'sm > 80', policy = "pow2" }, { policy = "exact" }])"),
       "found the device fact 'sm' in 'when' of a bucket of axis 'cols', expected types and choices alone");
  says(with_cols(R"([{ when = 'mode == "saturate"', policy = "pow2", edges = [8] }, { policy = "exact" }])"),
       "found the unknown key 'edges' in a bucket of policy 'pow2'");
  says(with_cols(R"([{ when = 'mode == "saturate"', policy = "edges", edges = [12] }, { policy = "exact" }])"),
       "found the edge 12 of axis 'cols', which has multiple_of = 8");
}

TEST_CASE("an axis that is exact for some choices alone is refused where a plan must know it") {
  testing::Folder folder = with_cols(R"([{ when = 'mode == "saturate"', policy = "pow2" }, { policy = "exact" }])");
  const std::string op = folder.op, implementation = folder.implementation;
  const auto refuses = [&](std::string_view what) {
    const std::string message = testing::refusal_of(folder);
    CAPTURE(message);
    CHECK(message.find("found the axis 'cols', which varies within a bucket when 'mode == \"saturate\"', in " +
                       std::string(what)) != std::string::npos);
  };
  folder.op = testing::replaced(op, "factor = \"f32\"", "factor = { type = \"f32\", default = \"1 / cols\" }");
  refuses("the default of 'factor' '1 / cols'");
  folder.op = op;
  folder.implementation = testing::replaced(implementation, "shared  = \"threads * 4\"", "shared = \"cols * 4\"");
  refuses("'shared'");
  folder.implementation = testing::replaced(implementation, "{vector * 2}", "{cols}");
  refuses("");
}
