// A config of a record serves if it is legal, whether or not a tune would try it today.
#include <doctest/doctest.h>

#include <algorithm>

#include "near_fixture.hpp"
#include "tune/serving.hpp"

using namespace kiln;
using namespace kiln::tune;
using namespace kiln::tune::testing;

TEST_CASE("a config that [search] has come to leave out still serves, and one that a constraint excludes does not") {
  manifest::Op op = rows_op();
  manifest::Implementation& fast = op.implementations.front();
  fast.search = {manifest::Expression::parse("vector >= 4 && threads >= 128", fast.symbols)};
  const Problem bucket = sized(64, 4096);
  const std::vector<manifest::Config> space = manifest::search_space(op, fast, bucket, h200());
  REQUIRE(std::ranges::find(space, manifest::Config{128, 8}) != space.end());
  REQUIRE(std::ranges::find(space, manifest::Config{64, 2}) == space.end());

  const Usable tuned = usable(op, bucket, h200(), "fast", "threads=64 vector=2");
  CHECK(tuned.implementation == &fast);
  CHECK(tuned.config == manifest::Config{64, 2});
  CHECK(usable(op, bucket, h200(), "fast", "threads=1024 vector=8").why_not.find("breaks the constraint") !=
        std::string::npos);

  const Usable fallback = default_for(op, bucket, h200());
  CHECK(fallback.implementation == &fast);
  CHECK(fallback.config == fast.default_config);
}
