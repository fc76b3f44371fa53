#include "tune/intervals.hpp"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <map>
#include <set>

namespace kiln::tune {
namespace {

using TimeAt = std::function<double(std::size_t candidate, std::int64_t size)>;  // 0: not launchable

Comparison compared_at(std::int64_t size, std::size_t candidates, const TimeAt& time_at) {
  Comparison comparison;
  for (std::size_t i = 0; i < candidates; ++i)
    if (const double ns = time_at(i, size); ns > 0) comparison.push_back({i, std::vector<double>(7, ns)});
  return comparison;
}

struct Switched {
  std::vector<std::pair<std::int64_t, Comparison>> found;
  std::set<std::int64_t> sizes;  // probed
  int rounds = 0;
};

Switched switched(std::int64_t low, std::vector<std::int64_t> ends, std::size_t candidates, const TimeAt& time_at,
                  std::vector<std::size_t> of_libraries = {}, std::int64_t multiple = 1) {
  std::vector<Comparison> comparisons;
  for (const std::int64_t end : ends) comparisons.push_back(compared_at(end, candidates, time_at));
  Halving halving({{low, ends.back(), multiple}, ends, comparisons, {}, of_libraries, {}, {}});
  Switched result;
  for (auto probes = halving.next(); !probes.empty(); probes = halving.next()) {
    ++result.rounds;
    for (const Probe& probe : probes) {
      result.sizes.insert(probe.size);
      const double ns = time_at(probe.candidate, probe.size);
      halving.report(probe, ns > 0 ? std::vector<double>(7, ns) : std::vector<double>());
    }
  }
  result.found = halving.found();
  return result;
}

/// Candidate 0 takes steps of 64 rows, candidate 1 steps of 85, which cost more.
double stairs_of_two(std::size_t candidate, std::int64_t size) {
  return candidate == 0 ? 100.0 * static_cast<double>((size + 63) / 64) : 130.0 * static_cast<double>((size + 84) / 85);
}

}  // namespace

TEST_CASE("an interval is parted where another candidate is faster at its lower sizes") {
  // Up to 170 two steps of candidate 1 take less than three of candidate 0, which last until 192.
  const auto result = switched(65, {148, 192, 256}, 2, stairs_of_two);
  REQUIRE(result.found.size() == 1);
  CHECK(result.found[0].first > 160);
  CHECK(result.found[0].first <= 170);
  CHECK(result.found[0].second.size() == 2);
}

TEST_CASE("an interval is parted where a tile's stair ends, at a multiple of 8") {
  // As measured (H100, 5120 x 13824): one algorithm is the fastest up to 1560 rows and takes 1.4 times as long above.
  const auto found = switched(1281, {1557, 1578, 1664}, 2, [](std::size_t candidate, std::int64_t size) {
                       if (candidate == 1) return 292.0;
                       return size <= 1560 ? 276.0 : 396.0;
                     }).found;
  REQUIRE(found.size() == 1);
  CHECK(found[0].first == 1560);
  const auto wide = switched(1025, {1920, 2026, 2200}, 2, [](std::size_t candidate, std::int64_t size) {
                      if (candidate == 1) return 613.0;
                      return size <= 2016 ? 598.0 : 678.0;
                    }).found;
  REQUIRE(wide.size() == 1);
  CHECK(wide[0].first == 2016);
}

TEST_CASE("sizes above the lowest are probed at multiples of 8, where tiles end, and of the axis") {
  for (const std::int64_t size : switched(65, {148, 192, 256}, 2, stairs_of_two).sizes)
    CHECK((size % 8 == 0 || size == 65 || size == 149 || size == 193));
  const auto eights = switched(72, {144, 192, 256}, 2, stairs_of_two, {}, 8);
  for (const std::int64_t size : eights.sizes) CHECK(size % 8 == 0);
}

TEST_CASE("where one candidate is the fastest at both ends and just above the lower one, one round is all") {
  const auto result =
      switched(65, {148, 192, 256}, 2, [](std::size_t candidate, std::int64_t) { return candidate == 0 ? 100 : 103; });
  CHECK(result.found.empty());
  CHECK(result.rounds == 1);
}

TEST_CASE("a wide interval is halved a few times and no more") {
  const auto result = switched(1, {20000, 40000}, 2, [](std::size_t candidate, std::int64_t size) {
    if (candidate == 1) return 100.0;
    return size <= 13571 ? 90.0 : 110.0;
  });
  CHECK(result.rounds == 6);
  REQUIRE(result.found.size() == 1);
  CHECK(result.found[0].first <= 13571);
  CHECK(result.found[0].first > 12000);
}

TEST_CASE("a switch among those that need no library counts, where a library leads throughout") {
  const auto time_at = [](std::size_t candidate, std::int64_t size) {
    return candidate == 2 ? 50.0 : stairs_of_two(candidate, size);
  };
  CHECK(switched(65, {148, 192, 256}, 3, time_at, {2}).found.size() == 1);
  CHECK(switched(65, {148, 192, 256}, 3, time_at).found.empty());
}

TEST_CASE("what cannot be launched at the lower sizes leaves them to others") {
  const auto result = switched(65, {128, 256}, 2, [](std::size_t candidate, std::int64_t size) {
    if (candidate == 0) return 100.0;
    return size < 200 ? 0.0 : 90.0;
  });
  REQUIRE(result.found.size() == 1);
  CHECK(result.found[0].first > 129);
  CHECK(result.found[0].first < 200);
  for (const Compared& each : result.found[0].second) CHECK(each.candidate == 0);
}

TEST_CASE("narrow intervals and single candidates are left as they are") {
  CHECK(switched(65, {72, 80, 88}, 2, stairs_of_two).rounds == 0);
  CHECK(switched(65, {148, 192, 256}, 1, stairs_of_two).rounds == 0);
}

}  // namespace kiln::tune
