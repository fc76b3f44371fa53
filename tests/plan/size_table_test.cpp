// The plan for a real size, by bounds on one axis and on two.
#include "plan/size_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "answer/near_fixture.hpp"
#include "plan/bucket_plans.hpp"

using namespace kiln;
using namespace kiln::plan;
using namespace kiln::answer::testing;

namespace {

/// Never looked into: a table hands out addresses.
const PlanState* numbered(std::uintptr_t number) { return reinterpret_cast<const PlanState*>(64 * number); }

/// rows and cols both in powers of two.
manifest::Op two_axes() {
  manifest::Op op = rows_op();
  op.axes[1].policies = op.axes[0].policies;
  return op;
}

manifest::Region region(Problem low, Problem high) { return {low, high}; }

struct Grid {
  manifest::Op op = two_axes();
  Problem bucket = sized(1024, 2048);
  std::vector<manifest::Region> regions;
  const PlanState* first_with(const Problem& problem) const {
    for (std::size_t i = 0; i < regions.size(); ++i)
      if (regions[i].contains(op, problem)) return numbered(i + 1);
    return numbered(99);
  }
  SizeTable table() const {
    return {op, bucket, regions, [this](const Problem& problem) { return first_with(problem); }};
  }
  void check() const {
    const SizeTable made = table();
    for (std::int64_t rows = 513; rows <= 1024; rows += rows % 7 + 1)
      for (std::int64_t cols = 1025; cols <= 2048; cols += cols % 11 + 1) {
        const Problem problem = sized(rows, cols);
        CAPTURE(rows);
        CAPTURE(cols);
        REQUIRE(SizeTable::pick(made.words(), problem) == first_with(problem));
      }
  }
};

}  // namespace

TEST_CASE("one plan for all sizes needs no table") {
  Grid grid;
  grid.regions = {manifest::whole_of(grid.op, grid.bucket)};
  CHECK(grid.table().is_uniform());
  CHECK(grid.table().cells() == std::vector{numbered(1)});
  grid.regions = {manifest::whole_of(grid.op, grid.bucket), region(sized(600, 1025), sized(700, 2048))};  // hidden
  CHECK(grid.table().is_uniform());
}

TEST_CASE("each size of an axis finds the plan of its interval, also outside the bucket") {
  Grid grid;
  grid.regions = {region(sized(513, 1025), sized(600, 2048)), region(sized(601, 1025), sized(700, 2048)),
                  region(sized(701, 1025), sized(1024, 2048))};
  const SizeTable table = grid.table();
  const auto at = [&](std::int64_t rows) { return SizeTable::pick(table.words(), sized(rows, 1500)); };
  CHECK(at(513) == numbered(1));
  CHECK(at(600) == numbered(1));
  CHECK(at(601) == numbered(2));
  CHECK(at(700) == numbered(2));
  CHECK(at(701) == numbered(3));
  CHECK(at(1024) == numbered(3));
  CHECK(at(1) == numbered(1));
  CHECK(at(9000) == numbered(3));
  CHECK(table.cells() == std::vector{numbered(1), numbered(2), numbered(3)});
}

TEST_CASE("two open axes are looked up each by itself") {
  Grid grid;
  grid.regions = {region(sized(513, 1025), sized(600, 1500)), region(sized(513, 1501), sized(600, 2048)),
                  region(sized(601, 1025), sized(1024, 1200)), region(sized(601, 1201), sized(1024, 2048))};
  grid.check();
}

TEST_CASE("an earlier region hides what it shares with a later one, and sizes without any have the last resort") {
  Grid grid;
  grid.regions = {region(sized(600, 1100), sized(700, 1800)), region(sized(650, 1025), sized(900, 1500)),
                  region(sized(513, 1600), sized(1024, 2048))};
  grid.check();
}

TEST_CASE("bounds that part nothing are left out") {
  Grid grid;
  grid.regions = {region(sized(513, 1025), sized(600, 2048)), region(sized(601, 1025), sized(1024, 2048))};
  const SizeTable table(grid.op, grid.bucket, grid.regions,
                        [&](const Problem& problem) { return problem.axes[0] <= 600 ? numbered(1) : numbered(2); });
  CHECK(table.cells().size() == 2);
  // The rows' bound parts nothing when both halves have one plan.
  const SizeTable same(grid.op, grid.bucket, grid.regions, [](const Problem&) { return numbered(1); });
  CHECK(same.is_uniform());
}

TEST_CASE("sizes whose plan is not made yet find none, until it is put there") {
  Grid grid;
  answer::Answer answer;
  PlanSlot lower(answer), upper(answer);
  grid.regions = {region(sized(513, 1025), sized(600, 2048)), region(sized(601, 1025), sized(700, 2048)),
                  region(sized(701, 1025), sized(1024, 2048))};
  SizeTable table(grid.op, grid.bucket, grid.regions, [&](const Problem& problem) {
    if (problem.axes[0] > 700) return SizeTable::unmade(upper);
    return problem.axes[0] > 600 ? numbered(2) : SizeTable::unmade(lower);
  });
  const auto at = [&](std::int64_t rows) { return SizeTable::pick(table.words(), sized(rows, 1500)); };
  CHECK(at(600) == nullptr);
  CHECK(at(601) == numbered(2));
  CHECK(at(1024) == nullptr);
  table.set(sized(550, 2048), numbered(1));
  CHECK(at(513) == numbered(1));
  CHECK(at(601) == numbered(2));
  CHECK(at(1024) == nullptr);
  std::vector<const PlanSlot*> asked;
  table.make_all([&](PlanSlot& slot) {
    asked.push_back(&slot);
    return numbered(3);
  });
  CHECK(asked == std::vector<const PlanSlot*>{&upper});
  CHECK(at(1024) == numbered(3));
}
