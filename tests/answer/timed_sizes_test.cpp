#include "answer/timed_sizes.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "near_fixture.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::answer::testing;

namespace {

std::vector<std::int64_t> ends_of(std::int64_t rows, std::size_t at_most = 8) {
  return even_sizes(rows_op(), sized(rows, 4096), at_most).ends.front();
}

/// An op with two open axes, rows and cols.
manifest::Op two_open_axes() {
  const manifest::Op one = rows_op();
  std::vector<manifest::SourceFile> files = one.manifests;
  files.insert(files.end(), one.files.begin(), one.files.end());
  for (manifest::SourceFile& file : files)
    if (file.name == "op.toml") {
      std::string text = file.text.str();
      const std::string exact = "cols = { bucket = \"exact\"";
      text.replace(text.find(exact), exact.size(), "cols = { bucket = \"pow2\"");
      file.text = text;
    }
  return manifest::parse_op("rows", "/ops/rows", files);
}

}  // namespace

TEST_CASE("a bucket's sizes are as many equal parts of it, at multiples of eight where it has as many") {
  CHECK(ends_of(1024) == std::vector<std::int64_t>{576, 640, 704, 768, 832, 896, 960, 1024});
  CHECK(ends_of(1024, 16).size() == 16);
  CHECK(ends_of(64) == std::vector<std::int64_t>{40, 48, 56, 64});
  CHECK(ends_of(16) == std::vector<std::int64_t>{16});
  CHECK(ends_of(1) == std::vector<std::int64_t>{1});
  CHECK(ends_of(1024, 2) == std::vector<std::int64_t>{768, 1024});
}

TEST_CASE("lengths on the device are halved together, then each alone") {
  manifest::Op op = two_open_axes();
  op.axes[0].on_device = true;
  CHECK(shorter_lengths(op, sized(33, 2049)) == std::vector{sized(17, 2049)});
  CHECK(shorter_lengths(op, sized(1, 2049)).empty());
  op.axes[1].on_device = true;
  CHECK(shorter_lengths(op, sized(33, 2049)) == std::vector{sized(17, 1025), sized(17, 2049), sized(33, 1025)});
  CHECK(shorter_lengths(op, sized(1, 2049)) == std::vector{sized(1, 1025)});
}

TEST_CASE("corners have one axis at its upper end and the others at their low ends") {
  const manifest::Op op = two_open_axes();
  CHECK(corners(op, sized(64, 4096)) == std::vector{sized(64, 2049), sized(33, 4096)});
  CHECK(corners(op, sized(1, 4096)).empty());
  CHECK(corners(rows_op(), sized(64, 4096)).empty());
}

TEST_CASE("an op without open axes has one size, its bucket") {
  manifest::Op op = rows_op();
  op.axes[0].policies.front().policy.kind = manifest::PolicyKind::exact;
  const TimedSizes sizes = even_sizes(op, sized(100, 4096), 8);
  CHECK(sizes.problems == std::vector{sized(100, 4096)});
  const auto all = intervals(op, sized(100, 4096), sizes, {3});
  REQUIRE(all.size() == 1);
  CHECK(all[0].candidate == 3);
  CHECK(manifest::to_string(op, all[0].region).empty());
}

TEST_CASE("neighbouring sizes of one config are one interval, which ends at a size that it was timed at") {
  const manifest::Op op = rows_op();
  const Problem bucket = sized(64, 4096);
  const TimedSizes sizes = even_sizes(op, bucket, 8);
  const auto all = intervals(op, bucket, sizes, {5, 5, 2, 2});
  REQUIRE(all.size() == 2);
  CHECK(manifest::to_string(op, all[0].region) == "rows=33..48");
  CHECK(all[0].candidate == 5);
  CHECK(all[0].size == 1);
  CHECK(manifest::to_string(op, all[1].region) == "rows=49..64");
  const auto filled = intervals(op, bucket, sizes, {std::nullopt, 1, std::nullopt, 2});
  REQUIRE(filled.size() == 2);
  CHECK(manifest::to_string(op, filled[0].region) == "rows=33..48");
  CHECK(manifest::to_string(op, filled[1].region) == "rows=49..64");
  CHECK(intervals(op, bucket, sizes, Assignment(4)).empty());
}

TEST_CASE("intervals cover every size of a bucket once, whatever serves which size, on one axis or two") {
  const manifest::Op one = rows_op(), two = two_open_axes();
  CHECK(rc::check([&] {
    const manifest::Op& op = *rc::gen::arbitrary<bool>() ? one : two;
    const Problem bucket = manifest::bucket_of(op, sized(*rc::gen::inRange(1, 3000), *rc::gen::inRange(1, 3000)));
    const TimedSizes sizes = even_sizes(op, bucket, 8);
    Assignment assignment;
    for (std::size_t i = 0; i < sizes.problems.size(); ++i)
      assignment.emplace_back(*rc::gen::inRange<std::size_t>(0, 3));
    const auto all = intervals(op, bucket, sizes, assignment);
    const Problem low = manifest::low_corner(op, bucket);
    for (int draw = 0; draw < 20; ++draw) {
      Problem problem = bucket;
      for (const std::size_t axis : sizes.axes)
        problem.axes[axis] = *rc::gen::inRange(low.axes[axis], bucket.axes[axis] + 1);
      const auto serves =
          std::ranges::count_if(all, [&](const Interval& each) { return each.region.contains(op, problem); });
      RC_ASSERT(serves == 1);
    }
    RC_ASSERT(all.back().region.high == bucket);
    for (const Interval& each : all) {
      RC_ASSERT(each.region.high == sizes.problems[each.size]);
      RC_ASSERT(assignment[each.size] == each.candidate);
      RC_ASSERT(manifest::parse_region(op, bucket, manifest::to_string(op, each.region)) == each.region);
    }
  }));
}

TEST_CASE("an end is added where the stair of the config that is fastest there ends") {
  // Tiles of 100 and of 160 rows, one wave each. The time of a large tile is less than proportional to its size.
  const std::vector<std::int64_t> sizes = {20, 40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 240, 260, 280, 300, 320};
  std::vector<double> small, large;
  for (const std::int64_t size : sizes) {
    small.push_back(static_cast<double>((size + 99) / 100) * 10);
    large.push_back(static_cast<double>((size + 159) / 160) * 14);
  }
  const std::vector<std::vector<double>> ns = {small, large};
  // The large tile serves at 320, in 28. Up to 100 rows the small tile takes 10 against 14, up to 200 rows 20 against 28.
  const auto added = stairs(sizes, ns, {320}, 8);
  CHECK(std::ranges::find(added, 100) != added.end());
  CHECK(std::ranges::find(added, 200) != added.end());
  CHECK(stairs(sizes, ns, {320}, 1).size() == 1);
  CHECK(stairs(sizes, std::vector<std::vector<double>>{small}, {320}, 8).empty());
}
