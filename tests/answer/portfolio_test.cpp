#include "answer/portfolio.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

using namespace kiln::answer;

namespace {

/// Returns relative times from times by size, then candidate. 0: not compared there. Times within 1 % of the best tie.
std::vector<std::vector<RelativeTime>> relative_times_of(const std::vector<std::vector<double>>& sizes) {
  std::vector<std::vector<RelativeTime>> result;
  for (const auto& times : sizes) {
    double best = 1e300;
    for (double each : times)
      if (each > 0) best = std::min(best, each);
    std::vector<RelativeTime>& size = result.emplace_back();
    for (std::size_t c = 0; c < times.size(); ++c)
      if (times[c] > 0) size.push_back({c, times[c] / best, times[c] <= 1.01 * best, 32});
  }
  return result;
}

Assignment serving(const std::vector<std::vector<double>>& sizes, std::size_t at_most = most_configs) {
  return choose_configs(relative_times_of(sizes), at_most);
}

std::size_t distinct(const Assignment& assignment) {
  return std::set<std::optional<std::size_t>>(assignment.begin(), assignment.end()).size();
}

}  // namespace

TEST_CASE("one config serves all sizes where it ties with the best of each") {
  CHECK(serving({{0, 100, 100.5}, {0, 200.8, 200}, {0, 300, 300}}) == Assignment{1, 1, 1});
  CHECK(serving({{100.2, 100, 100.5}, {200.1, 200.8, 200}}) == Assignment{0, 0});  // the baseline first
}

TEST_CASE("a size where another config is faster beyond a tie gets it") {
  CHECK(serving({{0, 100, 90}, {0, 200, 210}, {0, 300, 330}}) == Assignment{2, 1, 1});
}

TEST_CASE("what has no machine code is kept wherever it is faster, however many there are") {
  std::vector<std::vector<double>> sizes;
  for (int l = 0; l < 12; ++l) {
    std::vector<double> times{150};
    for (int c = 0; c < 12; ++c) times.push_back(c == l ? 100 : 120);
    sizes.push_back(times);
  }
  auto all = relative_times_of(sizes);
  CHECK(distinct(choose_configs(all)) <= most_configs);
  for (auto& size : all)
    for (RelativeTime& each : size) each.has_code = each.candidate == 0;
  const Assignment assignment = choose_configs(all);
  for (std::size_t l = 0; l < 12; ++l) CHECK(assignment[l] == l + 1);
}

TEST_CASE("what has no machine code is kept where it is faster, also where others' ties are widened") {
  // A config of its own is the best of each size by 2 %, but a library's at the seventh.
  constexpr std::size_t library = 13, its = 6;
  std::vector<std::vector<double>> sizes;
  for (std::size_t l = 0; l < 12; ++l) {
    std::vector<double> times{150};
    for (std::size_t c = 0; c < 12; ++c) times.push_back(c == l && l != its ? 100 : 102);
    times.push_back(l == its ? 100 : 130);
    sizes.push_back(times);
  }
  auto all = relative_times_of(sizes);
  for (auto& size : all)
    for (RelativeTime& each : size) each.has_code = each.candidate != library;
  const Assignment assignment = choose_configs(all);
  CHECK(assignment[its] == library);
  CHECK(distinct(assignment) <= most_configs + 1);
}

TEST_CASE("no more configs are kept than asked for, and those that leave the least regret") {
  // Four candidates, each the best at one size, 4 % behind at its neighbours and 20 % elsewhere.
  std::vector<std::vector<double>> sizes;
  for (int l = 0; l < 4; ++l) {
    std::vector<double> times{500};
    for (int c = 0; c < 4; ++c) times.push_back(100 * (c == l ? 1 : std::abs(c - l) == 1 ? 1.04 : 1.2));
    sizes.push_back(times);
  }
  CHECK(distinct(serving(sizes, 4)) == 4);
  const Assignment two = serving(sizes, 2);
  CHECK(distinct(two) == 2);
  for (std::size_t l = 0; l < 4; ++l) CHECK(sizes[l][*two[l]] <= 104.0001);
  CHECK(distinct(serving(sizes, 1)) == 1);
}

TEST_CASE("a size where nothing came out right has none, and the others are served") {
  CHECK(serving({{0, 0}, {0, 100}}) == Assignment{std::nullopt, 1});
  CHECK(serving({{0, 0}}) == Assignment{std::nullopt});
  CHECK(serving({}).empty());
}

TEST_CASE("a size where nothing ties is covered within the next tolerance, whatever ties elsewhere") {
  // No candidate ties at the second size, as where the lead of a library is within a tie and is not taken.
  auto sizes = relative_times_of({{0, 100, 104}, {0, 204, 200}});
  sizes[1][1].ties = false;
  sizes[1][1].behind = 1.02;
  sizes[1][0].behind = 1.035;
  CHECK(choose_configs(sizes) == Assignment{1, 2});
  CHECK(choose_configs(std::vector<std::vector<RelativeTime>>{sizes[1]}) == Assignment{2});
}

TEST_CASE("a config goes on at the next smaller size where it is as good as any of those kept") {
  // Both are kept for the ends. In the middle they are within 0.7 % of each other.
  CHECK(serving({{0, 100, 120}, {0, 200, 201}, {0, 360, 300}}) == Assignment{1, 2, 2});
}

TEST_CASE("the regret of what is chosen is bounded wherever six configs can bound it") {
  CHECK(rc::check([] {
    const auto sizes_count = *rc::gen::inRange<std::size_t>(1, 12);
    const auto candidates = *rc::gen::inRange<std::size_t>(1, 12);
    std::vector<std::vector<double>> sizes(sizes_count);
    for (auto& each : sizes)
      for (std::size_t c = 0; c < candidates; ++c) each.push_back(*rc::gen::inRange(100, 140));
    const auto all = relative_times_of(sizes);
    const Assignment assignment = choose_configs(all);
    RC_ASSERT(distinct(assignment) <= most_configs);
    for (std::size_t l = 0; l < sizes_count; ++l) {
      RC_ASSERT(assignment[l].has_value());
      if (candidates <= most_configs) {
        const double best = *std::ranges::min_element(sizes[l]);
        RC_ASSERT(sizes[l][*assignment[l]] <= 1.02 * best);
      }
    }
  }));
}

TEST_CASE("one config for a whole bucket is the least behind on average, and counts as slow where it was not timed") {
  const auto one = [](const std::vector<std::vector<double>>& by_candidate) { return choose_one(by_candidate); };
  CHECK(one({{100, 205, 0}, {110, 200, 300}, {0, 0, 310}}) == 1);
  CHECK(one({{100, 200, 900}, {120, 240, 310}}) == 1);  // three times as slow at one size
  CHECK(one({{100, 200}, {0, 190}}) == 0);
  CHECK(one({{0, 0, 100, 100}, {130, 130, 130, 130}, {100, 100, 0, 160}}) ==
        0);                                                 // a slow one that was timed everywhere
  CHECK(one({{100, 0, 0, 0}, {130, 130, 130, 140}}) == 1);  // one of which little is known
  CHECK(one({{100, 0, 0, 0}, {0, 130, 0, 0}}) == 0);
  CHECK(one({{0, 0}, {0, 200}}) == 1);
  CHECK(one({{0, 0}}) == std::nullopt);
  CHECK(one({}) == std::nullopt);
}
