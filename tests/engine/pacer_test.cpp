#include "engine/pacer.hpp"

#include <doctest/doctest.h>

using kiln::engine::Pacer;
using std::chrono::milliseconds;

namespace {

constexpr double ms = 1e6;  // nanoseconds

}  // namespace

TEST_CASE("after each burst the device is left alone until the burst was within its share") {
  Pacer pacer(0.1);
  auto now = Pacer::Clock::now();
  CHECK(pacer.owe(1 * ms, now) == milliseconds(9));
  now += milliseconds(9);
  CHECK(pacer.owe(2 * ms, now + milliseconds(2)) == milliseconds(18));
}

TEST_CASE("bursts that follow each other without the wait are owed for together") {
  Pacer pacer(0.5);
  const auto now = Pacer::Clock::now();
  CHECK(pacer.owe(1 * ms, now) == milliseconds(1));
  CHECK(pacer.owe(1 * ms, now + milliseconds(1)) == milliseconds(2));
}

TEST_CASE("time that was left unused buys no burst later") {
  Pacer pacer(0.1);
  auto now = Pacer::Clock::now();
  pacer.owe(1 * ms, now);
  CHECK(pacer.owe(1 * ms, now + std::chrono::hours(1)) == milliseconds(9));
}

TEST_CASE("the smallest share leaves the device alone for nearly a year after a burst") {
  Pacer pacer(1e-300);
  CHECK(pacer.owe(1 * ms, Pacer::Clock::now()) > std::chrono::hours(24 * 340));
}

TEST_CASE("a share of all the time never waits, and a stop ends a wait") {
  Pacer whole(1);
  CHECK(whole.owe(5 * ms, Pacer::Clock::now()) == milliseconds(0));
  Pacer slow(1e-9);
  std::stop_source stop;
  stop.request_stop();
  slow.spend(5 * ms, stop.get_token());  // would last two months
}
