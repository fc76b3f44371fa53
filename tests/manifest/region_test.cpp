// The sizes of a bucket that one config serves, and their text.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "manifest/region.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

/// rows is a power of two, cols exact or, with `two_open`, in steps.
Op sized_op(bool two_open = false) {
  testing::Folder folder = testing::scale_folder();
  if (two_open) folder.op = testing::replaced(folder.op, "cols = { bucket = \"exact\"", "cols = { bucket = \"pow2\"");
  return folder.parse();
}

Problem sized(std::int64_t rows, std::int64_t cols) {
  Problem problem;
  problem.axes = {rows, cols};
  return problem;
}

}  // namespace

TEST_CASE("a region is written as an interval of each axis that is not exact, in the manifest's order") {
  const Op one = sized_op(), two = sized_op(true);
  CHECK(open_axes(one, Problem{}) == std::vector<std::size_t>{0});
  CHECK(to_string(one, {sized(65, 4096), sized(96, 4096)}) == "rows=65..96");
  CHECK(to_string(two, {sized(65, 2056), sized(96, 4096)}) == "rows=65..96 cols=2056..4096");
  CHECK(to_string(one, whole_of(one, sized(128, 4096))) == "rows=65..128");
  CHECK(to_string(two, whole_of(two, sized(128, 4096))) == "rows=65..128 cols=2056..4096");
  CHECK(open_sizes(one, sized(96, 4096)) == "rows=96");
  CHECK(open_sizes(two, sized(96, 4096)) == "rows=96 cols=4096");
  Op exact = sized_op();
  exact.axes[0].policies.assign(1, {});
  CHECK(open_axes(exact, Problem{}).empty());
  CHECK(to_string(exact, whole_of(exact, sized(96, 4096))).empty());
  CHECK(parse_region(exact, sized(96, 4096), "") == whole_of(exact, sized(96, 4096)));
}

TEST_CASE("a region holds the problems between its ends, both included") {
  const Op op = sized_op(true);
  const Region region{sized(65, 2056), sized(96, 3000)};
  for (const auto& [rows, cols, held] : {std::tuple(65, 2056, true),
                                         {96, 3000, true},
                                         {64, 2056, false},
                                         {97, 2056, false},
                                         {80, 2048, false},
                                         {80, 3008, false}}) {
    CHECK(region.contains(op, sized(rows, cols)) == held);
  }
}

TEST_CASE("a region and sizes are read back from their texts") {
  const Op op = sized_op(true);
  CHECK(rc::check([&] {
    const Problem bucket = bucket_of(op, sized(*rc::gen::inRange(1, 4097), 8 * *rc::gen::inRange(1, 8193)));
    const Problem low = low_corner(op, bucket);
    Region region = whole_of(op, bucket);
    for (const std::size_t axis : open_axes(op, bucket)) {
      region.low.axes[axis] = *rc::gen::inRange(low.axes[axis], bucket.axes[axis] + 1);
      region.high.axes[axis] = *rc::gen::inRange(region.low.axes[axis], bucket.axes[axis] + 1);
    }
    RC_ASSERT(parse_region(op, bucket, to_string(op, region)) == region);
    RC_ASSERT(parse_open_sizes(op, bucket, open_sizes(op, region.high)) == region.high);
  }));
}

TEST_CASE("no other text is a region of the bucket") {
  const Op op = sized_op();
  const Problem bucket = sized(128, 4096);
  REQUIRE(parse_region(op, bucket, "rows=65..128"));
  REQUIRE(parse_open_sizes(op, bucket, "rows=65"));
  for (const char* bad :
       {"", "rows=64..128", "rows=65..129", "rows=97..96", "rows=65-128", "rows=65", "rows=65..", "rows=..128",
        "rows=065..128", "rows=+65..128", "rows=65..128 ", " rows=65..128", "rows=65..128 cols=4096..4096",
        "cols=4096..4096", "m=65..128", "rows=65..99999999999999999999"}) {
    CAPTURE(std::string(bad));
    CHECK_FALSE(parse_region(op, bucket, bad));
  }
  for (const char* bad :
       {"", "rows=64", "rows=129", "rows=065", "rows=65..128", "rows=65 ", "rows=65 cols=4096", "m=65"}) {
    CAPTURE(std::string(bad));
    CHECK_FALSE(parse_open_sizes(op, bucket, bad));
  }
}
