// What failed for a moment, by a clock that the test moves.
#include "engine/retry.hpp"

#include <doctest/doctest.h>

using namespace kiln::engine;

TEST_CASE("what failed for a moment is due again after twice as long each time, up to the longest pause") {
  Retry retry;
  Retry::Clock::time_point now{};
  CHECK(retry.is_due(now));
  std::chrono::milliseconds pause = Retry::first_pause;
  for (int i = 0; i < 20; ++i) {
    retry.failed(now);
    CHECK_FALSE(retry.is_due(now));
    CHECK_FALSE(retry.is_due(now + pause - std::chrono::nanoseconds(1)));
    now += pause;
    CHECK(retry.is_due(now));
    pause = std::min(2 * pause, Retry::longest_pause);
  }
}
