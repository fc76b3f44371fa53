#include "tune/intervals.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace kiln::tune {
namespace {

/// Steps of `rows`, each of `ns`.
double steps(std::int64_t size, std::int64_t rows, double ns) {
  return ns * static_cast<double>((size + rows - 1) / rows);
}

struct InnerSize {
  std::int64_t size = 0;
  std::vector<std::size_t> candidates;
};

/// A bucket of sizes 4097 to 8192 that was timed at few ends. Candidate 0 takes steps of 2048 rows, 1 steps of 1500 and 2 is a library's.
struct Axis {
  std::vector<std::int64_t> ends{6144, 8192};
  std::vector<Comparison> comparisons;
  std::vector<std::vector<Cost>> costs{3};
  std::vector<std::size_t> of_libraries{2};
  std::vector<FirstProposal> proposals;

  static double time_at(std::size_t candidate, std::int64_t size) {
    if (candidate == 2) return 1e6;
    return candidate == 0 ? steps(size, 2048, 1e5) : steps(size, 1500, 0.8e5);
  }
  Axis() {
    for (const std::int64_t end : ends) {
      Comparison& comparison = comparisons.emplace_back();
      for (std::size_t candidate = 0; candidate < 3; ++candidate) {
        std::vector<double> samples(7, time_at(candidate, end));
        comparison.push_back({candidate, samples});
        costs[candidate].push_back(summarise(samples));
      }
    }
  }
  [[nodiscard]] std::vector<InnerSize> sizes(std::size_t at_most, std::size_t points = 1000) const {
    std::vector<InnerSize> sizes;
    for (const Probe& each :
         inner_probes({{4097, 8192, 1},
                       ends,
                       comparisons,
                       costs,
                       of_libraries,
                       proposals,
                       // The model is wrong by a factor, not in its stairs.
                       [](std::size_t candidate, std::int64_t size) { return 3 * time_at(candidate, size); }},
                      {at_most, points})) {
      if (sizes.empty() || sizes.back().size != each.size) sizes.push_back({each.size, {}});
      sizes.back().candidates.push_back(each.candidate);
    }
    return sizes;
  }
};

Comparison compared(std::vector<std::pair<std::size_t, double>> times) {
  Comparison comparison;
  for (const auto& [candidate, ns] : times) comparison.push_back({candidate, std::vector<double>(7, ns)});
  return comparison;
}

}  // namespace

TEST_CASE("a size inside an interval is chosen where another candidate's stairs end") {
  // At 6144 and 8192 candidate 0 is the fastest. Up to 4500 candidate 1 takes 3 steps, 2.4e5 ns, and candidate 0 takes 3e5.
  const auto sizes = Axis().sizes(4);
  REQUIRE(!sizes.empty());
  CHECK(sizes.front().size > 4400);
  CHECK(sizes.front().size <= 4500);
  CHECK(std::ranges::find(sizes.front().candidates, 1) != sizes.front().candidates.end());
  CHECK(std::ranges::find(sizes.front().candidates, 0) != sizes.front().candidates.end());
  for (const InnerSize& each : sizes) CHECK(Axis::time_at(1, each.size) < Axis::time_at(0, each.size));
}

TEST_CASE("a library is compared at the last sizes of what it proposes") {
  Axis axis;
  axis.proposals = {{5000, 2}, {6144, 2}, {8192, 2}};
  const auto sizes = axis.sizes(4);
  const auto found = std::ranges::find(sizes, 5000, &InnerSize::size);
  REQUIRE(found != sizes.end());
  CHECK(std::ranges::find(found->candidates, 2) != found->candidates.end());
  CHECK(std::ranges::find(sizes, 6144, &InnerSize::size) == sizes.end());  // an end was compared
}

TEST_CASE("a library's proposal is compared with what serves its size alone, so that more proposals are") {
  Axis axis;
  for (std::int64_t size = 4237; size < 8192; size += 100) axis.proposals.push_back({size, 2});
  const auto sizes = axis.sizes(12, 40);
  std::size_t of_proposals = 0;
  for (const InnerSize& each : sizes) {
    if (each.size % 100 != 37) continue;  // where stairs end
    ++of_proposals;
    CHECK(each.candidates == std::vector<std::size_t>{0, 2});
  }
  CHECK(of_proposals > 10);
  CHECK(of_proposals < sizes.size());
}

TEST_CASE("no more sizes are chosen than asked for each reason") {
  Axis axis;
  for (std::int64_t size = 4200; size < 8192; size += 100) axis.proposals.push_back({size, 2});
  CHECK(axis.sizes(1).size() <= 2);
  CHECK(axis.sizes(3).size() <= 6);
  CHECK(axis.sizes(0).empty());
}

TEST_CASE("all sizes together have no more points than allowed, and either reason gives way") {
  Axis axis;
  for (std::int64_t size = 4200; size < 8192; size += 100) axis.proposals.push_back({size, 2});
  const auto points_of = [](const std::vector<InnerSize>& sizes) {
    std::size_t points = 0;
    for (const InnerSize& each : sizes) points += each.candidates.size();
    return points;
  };
  REQUIRE(points_of(axis.sizes(12)) > 24);
  CHECK(points_of(axis.sizes(12, 24)) <= 24);
  CHECK(points_of(axis.sizes(12, 24)) > 16);
  CHECK(axis.sizes(12, 3).size() == 1);  // the largest loss, by the model
  CHECK(axis.sizes(12, 3).front().size == Axis().sizes(1).front().size);
  CHECK(axis.sizes(12, 1).empty());
}

TEST_CASE("a size parts its interval only where another candidate is clearly faster") {
  const std::array<std::size_t, 1> libraries{2};
  const Fastest at_end = fastest_of(compared({{0, 100}, {1, 120}, {2, 110}}), libraries);
  CHECK(parts_interval(compared({{0, 100}, {1, 90}, {2, 110}}), at_end, libraries));
  CHECK_FALSE(parts_interval(compared({{0, 100}, {1, 99.5}, {2, 110}}), at_end, libraries));
  CHECK(parts_interval(compared({{0, 100}, {1, 120}, {2, 90}}), at_end, libraries));
  CHECK(parts_interval(compared({{1, 120}, {2, 110}}), at_end, libraries));  // 0 cannot be launched there
  CHECK_FALSE(parts_interval(compared({{0, 100}}), at_end, libraries));
  // Without libraries 1 is clearly faster, though a library is the fastest at both.
  CHECK(parts_interval(compared({{0, 100}, {1, 90}, {2, 80}}),
                       fastest_of(compared({{0, 100}, {1, 120}, {2, 80}}), libraries), libraries));
}

}  // namespace kiln::tune
