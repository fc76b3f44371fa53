// The bisection behind kiln tune --refine.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>

#include "cli/bench/refinery.hpp"

using kiln::cli::bench::last_winning;

TEST_CASE(
    "the edge of a split is a size at which the lower config was seen to win, in few probes and no finer than the axis") {
  CHECK(rc::check([] {
    const std::int64_t step = *rc::gen::inRange<std::int64_t>(1, 65);
    const std::int64_t low = step * *rc::gen::inRange<std::int64_t>(1, 1000);
    const std::int64_t high = low + *rc::gen::inRange<std::int64_t>(1, 5000);
    const std::int64_t last = *rc::gen::inRange<std::int64_t>(low, high);
    int asked = 0;
    const std::int64_t edge = last_winning(low, high, step, 6, [&](std::int64_t size) {
      ++asked;
      RC_ASSERT(size > low);
      RC_ASSERT(size < high);
      RC_ASSERT(size % step == 0);
      return size <= last;
    });
    RC_ASSERT(asked <= 6);
    RC_ASSERT(edge >= low);
    RC_ASSERT(edge <= last);
    RC_ASSERT(edge % step == 0);
    RC_ASSERT(last - edge <= std::max(step, (high - low) / 64 + 7 * step));
  }));
}

TEST_CASE("with probes enough the edge is exact") {
  for (const std::int64_t last : {65, 66, 94, 126, 127}) {
    CAPTURE(last);
    CHECK(last_winning(65, 128, 1, 6, [&](std::int64_t size) { return size <= last; }) == last);
  }
  CHECK(last_winning(72, 128, 8, 6, [](std::int64_t size) { return size <= 100; }) == 96);
  CHECK(last_winning(65, 128, 1, 6, [](std::int64_t) { return false; }) == 65);
}
