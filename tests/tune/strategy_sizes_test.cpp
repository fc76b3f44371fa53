// Search strategies where each size of a bucket may have a config of its own, and where a library stands beside kernels.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "surfaces.hpp"

using namespace test;

namespace {

/// Six sizes. A config is fastest near its own place, and slower with the distance from it.
struct Ridge {
  explicit Ridge(std::size_t candidates, double slope = 0.05) {
    for (std::size_t c = 0; c < candidates; ++c) {
      std::vector<double> row, expected;
      for (std::size_t l = 0; l < 6; ++l) {
        const double place = 5.0 * static_cast<double>(c) / static_cast<double>(candidates - 1);
        row.push_back(1e5 * (1 + static_cast<double>(l)) * (1 + slope * std::abs(place - static_cast<double>(l))));
        // The expectation has half of the slope.
        expected.push_back(1e5 * (1 + static_cast<double>(l)) *
                           (1 + slope / 2 * std::abs(place - static_cast<double>(l))));
      }
      truth.push_back(row);
      expectations.expected_ns.push_back(expected);
      expectations.legal.emplace_back(6, true);
      expectations.position.push_back({0, static_cast<std::int64_t>(c)});
    }
  }
  std::vector<std::vector<double>> truth;
  Expectations expectations;
};

}  // namespace

TEST_CASE("each size of a bucket gets a config that is fast there, in racing and in exhaustive search") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const Ridge ridge(24);
    for (const bool races : {true, false}) {
      CAPTURE(seed);
      CAPTURE(races);
      NoisySurface surface(ridge.truth, seed);
      const auto search = races ? racing(ridge.expectations, {.seed = seed}) : exhaustive(ridge.expectations);
      const Assignment serves = surface.run(*search);
      REQUIRE(serves.size() == 6);
      for (std::size_t size = 0; size < 6; ++size) {
        REQUIRE(serves[size].has_value());
        CHECK(surface.cost(*serves[size], size) <= 1.05 * surface.best(size));
      }
    }
  }
}

TEST_CASE("a candidate is not asked for where it is not legal, and does not serve there") {
  Ridge ridge(12);
  for (std::size_t c = 0; c < 12; ++c) {
    ridge.expectations.legal[c][5] = c == 0;
    if (c != 0) ridge.truth[c][5] = std::numeric_limits<double>::infinity();
  }
  NoisySurface surface(ridge.truth);
  const auto search = racing(ridge.expectations, {});
  const Assignment serves = surface.run(*search);
  CHECK(serves[5] == 0U);
  for (std::size_t c = 1; c < 12; ++c) CHECK(search->cost({c, 5}).failed());
}

TEST_CASE("where a library leads, kernels without one are compared as well, however far behind") {
  Ridge ridge(12, 0.01);
  ridge.expectations.of_libraries = {11};
  for (double& each : ridge.truth[11]) each *= 0.5;
  NoisySurface surface(ridge.truth);
  const auto search = racing(ridge.expectations, {});
  for (const auto& each : surface.run(*search)) CHECK(each == 11U);
  for (const Comparison& each : search->comparisons())
    CHECK(std::ranges::any_of(each, [](const Compared& compared) { return compared.candidate != 11; }));
}

TEST_CASE(
    "a library's many algorithms, expected to be faster than any kernel, do not keep Kiln's own from being tried") {
  constexpr std::size_t own = 24, all = 64;
  Ridge ridge(all);
  for (std::size_t c = 0; c < all; ++c)
    for (std::size_t l = 0; l < 6; ++l) {
      double& expected = ridge.expectations.expected_ns[c][l];
      if (c >= own) ridge.truth[c][l] = 1e5 * (1 + static_cast<double>(l)) * (1 + 0.001 * static_cast<double>(c % 3));
      if (c == 0) ridge.truth[c][l] *= 1.5;
      if (c >= own) expected = 0.2 * ridge.truth[c][l] * (1 + 0.001 * static_cast<double>(c));
    }
  for (std::size_t c = 0; c < all; ++c)
    ridge.expectations.position[c].push_back(static_cast<std::int64_t>(c));  // no two are neighbours
  for (std::size_t c = own; c < all; ++c) {
    ridge.expectations.of_libraries.push_back(c);
    ridge.expectations.position[c].front() = 1;
    if (c < own + 6) ridge.expectations.tried_first.push_back(c);
  }
  NoisySurface surface(ridge.truth);
  const auto search = racing(ridge.expectations, {.compiles_at_once = 16});
  surface.run(*search);
  std::size_t tried = 0;
  for (std::size_t c = 1; c < own; ++c) tried += search->cost({c, 0}).failed() ? 0 : 1;
  CHECK(tried >= own / 2);
}

TEST_CASE("of a library that is near the best its later proposals are tried as well, and do not end the search") {
  constexpr std::size_t own = 48, all = 80, last = all - 4;
  for (const double unit : {1e5, 1e8}) {
    CAPTURE(unit);
    Ridge ridge(all);
    for (std::size_t c = 0; c < all; ++c) {
      ridge.expectations.position[c].push_back(static_cast<std::int64_t>(c));  // no two are neighbours
      for (std::size_t l = 0; l < 6; ++l) {
        ridge.truth[c][l] = unit * (1 + static_cast<double>(l)) * (c == last ? 0.9 : c >= own ? 1 : 1.02);
        ridge.expectations.expected_ns[c][l] = (c >= own ? 0.2 : 1) * ridge.truth[c][l];
      }
      if (c >= own) ridge.expectations.of_libraries.push_back(c);
    }
    ridge.expectations.tried_first = {own};
    NoisySurface surface(ridge.truth);
    const auto tried = [&](std::size_t begin, std::size_t end) {
      std::size_t count = 0;
      for (std::size_t c = begin; c < end; ++c) count += surface.tried.contains(c) ? 1 : 0;
      return count;
    };
    std::size_t before = 0, most_at_once = 0;
    surface.after_ask = [&] {
      most_at_once = std::max(most_at_once, tried(own, all) - std::exchange(before, tried(own, all)));
    };
    const auto search = racing(ridge.expectations, {.compiles_at_once = 16});
    for (const auto& each : surface.run(*search)) CHECK((each == last || unit > 1e6));
    CHECK(tried(1, own) >= own / 3);
    CHECK((most_at_once == all - own - 1) == (unit < 1e6));  // else a sample of each would take 2 s
  }
}

TEST_CASE("a library's algorithm is timed where it was proposed alone, unless one candidate is to serve all sizes") {
  constexpr std::size_t own = 24, all = 32;
  for (const bool one_serves_all : {false, true}) {
    Ridge ridge(all);
    ridge.expectations.one_serves_all = one_serves_all;
    ridge.expectations.proposed_near.assign(all, std::vector<bool>(6, true));
    for (std::size_t c = own; c < all; ++c) {
      for (std::size_t l = 0; l < 6; ++l) {
        ridge.truth[c][l] = 0.9e5 * static_cast<double>(l + 1);
        ridge.expectations.expected_ns[c][l] = 0.5e5 * static_cast<double>(l + 1);
        ridge.expectations.proposed_near[c][l] = l == c % 6;
      }
      ridge.expectations.of_libraries.push_back(c);
    }
    ridge.expectations.tried_first = {own, own + 1};
    NoisySurface surface(ridge.truth);
    const auto search = racing(ridge.expectations, {.compiles_at_once = 16});
    surface.run(*search);
    for (std::size_t c = own; c < all; ++c)
      for (std::size_t l = 0; l < 6; ++l) CHECK(search->cost({c, l}).failed() == (l != c % 6 && !one_serves_all));
  }
}

TEST_CASE("a limit of trials leaves half of them to kernels, however many algorithms a library has") {
  constexpr std::size_t own = 40, all = 80;
  Ridge ridge(all);
  for (std::size_t c = own; c < all; ++c) {
    ridge.truth[c] = ridge.truth[0];
    ridge.expectations.of_libraries.push_back(c);
    if (c < own + 24) ridge.expectations.tried_first.push_back(c);  // a library's first at each size where it is asked
  }
  for (const std::int64_t trials : {2, 9, 16, 30}) {
    CAPTURE(trials);
    NoisySurface surface(ridge.truth);
    surface.run(*racing(ridge.expectations, {.compiles_at_once = 16, .trials = trials}));
    const auto kernels = std::ranges::count_if(surface.tried, [](const auto& each) { return each.first < own; });
    CHECK(surface.tried.size() == static_cast<std::size_t>(trials));
    CHECK(kernels >= (trials + 1) / 2);
  }
  // Where there are fewer kernels than that, a library has the other trials.
  Ridge few(all);
  few.expectations.of_libraries = ridge.expectations.of_libraries;
  for (std::size_t c = 4; c < own; ++c) few.expectations.of_libraries.push_back(c);
  NoisySurface surface(few.truth);
  surface.run(*racing(few.expectations, {.trials = 20}));
  CHECK(surface.tried.size() == 20);
}

TEST_CASE("a search that has only a library's algorithms left ends when they improve nothing") {
  constexpr std::size_t own = 4, all = 400;
  Ridge ridge(all);
  for (std::size_t c = 0; c < all; ++c) {
    ridge.truth[c] = ridge.truth[0];
    if (c >= own) ridge.expectations.of_libraries.push_back(c);
  }
  NoisySurface surface(ridge.truth);
  surface.run(*racing(ridge.expectations, {.compiles_at_once = 16}));
  CHECK(surface.tried.size() < all / 2);
}

TEST_CASE("kernels beside a library are tried by their model, as those without one") {
  constexpr std::size_t own = 48, all = 64;
  for (const bool modelled : {true, false}) {
    CAPTURE(modelled);
    Ridge ridge(all);
    for (std::size_t c = 0; c < all; ++c) {
      ridge.expectations.position[c].push_back(static_cast<std::int64_t>(c));  // no two are neighbours
      for (std::size_t l = 0; l < 6; ++l) {
        ridge.truth[c][l] = 1e5 * (1 + static_cast<double>(l)) * (c >= own ? 0.5 : 1);
        ridge.expectations.expected_ns[c][l] = ridge.truth[c][l];
      }
      if (c < own) continue;
      ridge.expectations.of_libraries.push_back(c);
      if (modelled) ridge.expectations.modelled_libraries.push_back(c);
    }
    NoisySurface surface(ridge.truth);
    const auto search = racing(ridge.expectations, {.compiles_at_once = 16, .trials = 6});
    surface.run(*search);
    std::size_t tried = 0;
    for (std::size_t c = own; c < all; ++c) tried += search->cost({c, 0}).failed() ? 0 : 1;
    CHECK((tried > 0) == modelled);  // a library alone comes last
  }
}

TEST_CASE("a newcomer is timed at the sizes where it may win") {
  Ridge ridge(24);
  for (std::size_t c = 0; c < 24; ++c)
    for (std::size_t l = 0; l < 6; ++l) ridge.expectations.expected_ns[c][l] = ridge.truth[c][l] * (c % 6 == l ? 1 : 3);
  NoisySurface surface(ridge.truth);
  surface.run(*racing(ridge.expectations, {}));
  CHECK(surface.points < 24 * 6 * 20);
  NoisySurface all(ridge.truth);
  all.run(*exhaustive(ridge.expectations));
  CHECK(surface.points < all.points);
}

TEST_CASE("a candidate that leads at one size is timed at others at which the model had it behind") {
  // The last candidate is the fastest everywhere. The model has it far behind but at the first size, and so it comes late.
  constexpr std::size_t late = 19;
  std::vector<std::vector<double>> truth;
  Expectations expectations;
  for (std::size_t c = 0; c <= late; ++c) {
    const auto slower = static_cast<double>(c) / 2;
    truth.push_back({100 + slower, 110 + slower, 120 + slower, 130 + slower});
    expectations.expected_ns.push_back(truth[c]);
    expectations.legal.emplace_back(4, true);
    expectations.position.push_back({0, static_cast<std::int64_t>(3 * c)});
  }
  truth[late] = {70, 78, 84, 90};
  expectations.expected_ns[late] = {112, 240, 260, 280};
  NoisySurface surface(truth);
  CHECK(surface.run(*racing(expectations, {})) == Assignment{late, late, late, late});
}

TEST_CASE("where one candidate is to serve all sizes, those that lead at some are timed at all of them") {
  Ridge ridge(24);
  for (std::size_t c = 0; c < 24; ++c)
    for (std::size_t l = 0; l < 6; ++l) ridge.expectations.expected_ns[c][l] = ridge.truth[c][l] * (c % 6 == l ? 1 : 3);
  const auto timed_everywhere = [&](bool one_serves_all) {
    ridge.expectations.one_serves_all = one_serves_all;
    NoisySurface surface(ridge.truth);
    const auto search = racing(ridge.expectations, {});
    const Assignment leaders = surface.run(*search);
    return std::ranges::all_of(leaders, [&](const auto& leader) {
      for (std::size_t size = 0; size < 6; ++size)
        if (search->cost({leader.value(), size}).failed()) return false;
      return true;
    });
  };
  CHECK_FALSE(timed_everywhere(false));
  CHECK(timed_everywhere(true));
  const auto ended = racing(ridge.expectations, {});  // its time is up: the last comparison follows
  ended->finish_early();
  NoisySurface surface(ridge.truth);
  surface.run(*ended);
  for (std::size_t c = 0; c < 24; ++c)
    for (std::size_t l = 0; l < 6; ++l) CHECK(ended->cost({c, l}).failed());
}
