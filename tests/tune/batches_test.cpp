// How rounds of long runs are split into batches, so that the device can rest.
#include <doctest/doctest.h>

#include <chrono>
#include <vector>

#include "tune/measure.hpp"

using kiln::tune::BatchTime;
using kiln::tune::in_batches;

namespace {

/// Returns the rounds of each batch. A round has two runs that take `round_ns` together.
std::vector<std::int64_t> batches_of(std::int64_t rounds, double expected_ns, double round_ns) {
  std::vector<std::int64_t> batches;
  in_batches(rounds, expected_ns, [&](std::int64_t now) {
    batches.push_back(now);
    return BatchTime{2 * static_cast<std::size_t>(now), round_ns * static_cast<double>(now)};
  });
  return batches;
}

}  // namespace

TEST_CASE("a batch is what fits into ten milliseconds, and a round at least") {
  CHECK(batches_of(0, 0, 1e3).empty());
  CHECK(batches_of(41, 1e3, 1e3) == std::vector<std::int64_t>{41});
  CHECK(batches_of(41, 0, 1e3) == std::vector<std::int64_t>{1, 40});  // nothing is known at first
  CHECK(batches_of(7, 4e6, 4e6) == std::vector<std::int64_t>{2, 2, 2, 1});
  CHECK(batches_of(3, 100e6, 12e6) == std::vector<std::int64_t>{1, 1, 1});
}

TEST_CASE(
    "after long runs the device rests for one and a half times as long; after short ones, or such as no rest would help, at once") {
  const auto taken_ms = [](double round_ns) {
    const auto begun = std::chrono::steady_clock::now();
    batches_of(1, round_ns, round_ns);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
  };
  CHECK(taken_ms(20e6) >= 30);
  CHECK(taken_ms(20e9) < 5000);
}

TEST_CASE("batches end where nothing was run") {
  int calls = 0;
  in_batches(5, 0, [&](std::int64_t) {
    ++calls;
    return BatchTime();
  });
  CHECK(calls == 1);
}
