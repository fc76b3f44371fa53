#include "tune/relative_times.hpp"

#include <doctest/doctest.h>

using namespace kiln::tune;

TEST_CASE("relative times hold each candidate against the fastest by samples of the same rounds") {
  const Comparison comparison = {{4, {100, 200, 100, 200, 100, 200, 100}}, {7, {110, 220, 110, 220, 110, 220, 110}}};
  const auto size = relative_times(comparison, [](std::size_t) { return Footprint{0, 40}; });
  REQUIRE(size.size() == 2);
  CHECK(size[0].candidate == 4);
  CHECK(size[0].ties);
  CHECK(size[0].behind == 1);
  CHECK(size[1].behind == doctest::Approx(1.1));
  CHECK_FALSE(size[1].ties);
}
