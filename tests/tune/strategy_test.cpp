// Search strategies on surfaces of known times, under noise.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "answer/portfolio.hpp"
#include "tune/relative_times.hpp"

using namespace kiln::answer;
using namespace kiln::tune;

namespace {

/// A simulated device: times by candidate and size, with noise and occasional interruptions.
class NoisySurface {
 public:
  explicit NoisySurface(std::vector<std::vector<double>> truth, unsigned seed = 1, double noise = 0.003)
      : truth_(std::move(truth)), random_(seed), noise_(noise) {}
  /// A surface of one size.
  explicit NoisySurface(const std::vector<double>& truth, unsigned seed = 1) : NoisySurface(columns(truth), seed) {}

  static std::vector<std::vector<double>> columns(const std::vector<double>& truth) {
    std::vector<std::vector<double>> matrix;
    for (double each : truth) matrix.push_back({each});
    return matrix;
  }

  /// Runs a search and returns what serves each size. Counts each candidate's samples in `tried`.
  Assignment run(Search& search) {
    while (const auto ask = search.next()) {
      std::vector<std::vector<double>> samples(ask->points.size());
      for (std::int64_t round = 0; round < ask->rounds; ++round)
        for (std::size_t i = 0; i < samples.size(); ++i) {
          const double truth = truth_[ask->points[i].candidate][ask->points[i].size];
          if (std::isfinite(truth)) samples[i].push_back(sample(truth));
        }
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const Point point = ask->points[i];
        tried[point.candidate] += ask->rounds;
        points += ask->rounds;
        if (failing.contains(point.candidate))
          search.reject(point.candidate);
        else
          search.report(point, samples[i]);
      }
      if (after_ask) after_ask();
    }
    std::vector<std::vector<RelativeTime>> sizes;
    for (const Comparison& each : search.comparisons())
      sizes.push_back(relative_times(each, [](std::size_t) { return Footprint{0, 32}; }));
    return choose_configs(sizes);
  }
  /// Runs a search of one size and returns its winner.
  std::optional<std::size_t> winner(Search& search) { return run(search).back(); }
  [[nodiscard]] double cost(std::size_t candidate, std::size_t size = 0) const { return truth_[candidate][size]; }
  [[nodiscard]] double best(std::size_t size = 0) const {
    double least = truth_.front()[size];
    for (const auto& each : truth_) least = std::min(least, each[size]);
    return least;
  }

  std::map<std::size_t, std::int64_t> tried;
  std::int64_t points = 0;
  std::set<std::size_t> failing;
  double drift = 0;  // of the clock, per sample
  std::function<void()> after_ask;

 private:
  double sample(double truth) {
    clock_ += drift;
    const bool interrupted = std::uniform_int_distribution<int>(0, 60)(random_) == 0;
    return truth * (1 + clock_) * (1 + noise_ * std::abs(normal_(random_)) + (interrupted ? 0.3 : 0));
  }
  std::vector<std::vector<double>> truth_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_{0, 1};
  double noise_, clock_ = 0;
};

/// Returns expectations for one size, at which all candidates are legal.
Expectations expectations_of(const std::vector<double>& expected,
                             std::vector<std::vector<std::int64_t>> position = {}) {
  Expectations expectations;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expectations.expected_ns.push_back({expected[i]});
    expectations.legal.push_back({true});
    expectations.position.push_back(position.empty() ? std::vector<std::int64_t>{0, static_cast<std::int64_t>(i)}
                                                     : position[i]);
  }
  return expectations;
}
std::unique_ptr<Search> exhaustive_of(std::size_t candidates) {
  return exhaustive(expectations_of(std::vector<double>(candidates, 1.0)));
}
bool has(const Ask& ask, std::size_t candidate) {
  return std::ranges::find(ask.points, candidate, &Point::candidate) != ask.points.end();
}

/// A smooth minimum over two parameters of eight values each, with some roughness. Candidate 0 lies in a corner.
struct Bowl {
  explicit Bowl(unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> place(0, 7), rough(0, 0.03);
    const double x0 = place(random), y0 = place(random);
    for (int x = 0; x < 8; ++x)
      for (int y = 0; y < 8; ++y) {
        truth.push_back(1e5 * (1 + 0.06 * ((x - x0) * (x - x0) + (y - y0) * (y - y0))) * (1 + rough(random)));
        expectations.position.push_back({0, x, y});
        expectations.expected_ns.push_back({1});
        expectations.legal.push_back({true});
      }
  }
  std::vector<double> truth;
  Expectations expectations;
};

}  // namespace

TEST_CASE("exhaustive search tries every candidate, the hopeless ones once") {
  NoisySurface surface({1e5, 5e4, 9e5, 5.2e4, 7e4});
  const auto search = exhaustive_of(5);
  CHECK(search->upcoming() == std::vector<std::size_t>{0, 1, 2, 3, 4});
  CHECK(surface.winner(*search) == 1U);
  CHECK(surface.tried.size() == 5);
  CHECK(surface.tried[2] == 1);
  CHECK(surface.tried[3] > surface.tried[2]);
}

TEST_CASE("candidates of the last comparison are timed in turns, so that a drifting clock decides nothing") {
  // One after the other, the later one would look 4 % slower; it is 2 % faster.
  NoisySurface surface({1.02e5, 1e5});
  surface.drift = 0.002;
  const auto search = exhaustive_of(2);
  CHECK(surface.winner(*search) == 1U);
}

TEST_CASE("racing does not leave the lead to those that were timed before the clock fell") {
  // Six candidates are tried before the best one, which the clock then makes slower than the baseline was.
  Expectations expectations;
  std::vector<double> truth;
  for (int i = 0; i < 12; ++i) {
    truth.push_back(i == 7 ? 0.95e5 : 1e5 + 1e3 * i);
    expectations.expected_ns.push_back({i < 7 ? 1 : i == 7 ? 1.1 : 2});
    expectations.legal.push_back({true});
    expectations.position.push_back({0, i});
  }
  NoisySurface surface(truth);
  surface.drift = 0.01;
  CHECK(surface.winner(*racing(expectations, {})) == 7U);
}

TEST_CASE(
    "what only ran in early rounds is told by the clock of the last comparison, beside which it would look fast") {
  Expectations expectations;
  std::vector<double> truth;
  for (int i = 0; i < 24; ++i) {
    truth.push_back(i == 5 ? 0.8e5 : 1e5 + 1e3 * i);
    expectations.expected_ns.push_back({1 + 0.01 * i});
    expectations.legal.push_back({true});
    expectations.position.push_back({0, i});
  }
  NoisySurface surface(truth);
  surface.drift = 0.01;
  const auto search = racing(expectations, {});
  CHECK(surface.winner(*search) == 5U);
  std::size_t told = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (search->cost({i, 0}).failed()) continue;
    ++told;
    CHECK(search->cost({i, 0}).median_ns / search->cost({5, 0}).median_ns ==
          doctest::Approx(truth[i] / truth[5]).epsilon(0.1));
  }
  CHECK(told > 5);
}

TEST_CASE("costs stay finite where a clock is too coarse to see any") {
  Expectations expectations;
  for (int i = 0; i < 24; ++i) {
    expectations.expected_ns.push_back({1 + 0.01 * i});
    expectations.legal.push_back({true});
    expectations.position.push_back({0, i});
  }
  NoisySurface surface(std::vector<double>(24, 0.0));
  const auto search = racing(expectations, {});
  CHECK(surface.winner(*search).has_value());
  for (std::size_t i = 0; i < 24; ++i)
    if (!search->cost({i, 0}).failed()) CHECK(std::isfinite(search->cost({i, 0}).high_ns));
}

TEST_CASE("a rejected candidate never wins, nor does anything when all are rejected") {
  NoisySurface surface({1e5, 5e4, 6e4});
  surface.failing = {1};
  CHECK(surface.winner(*exhaustive_of(3)) == 2U);
  NoisySurface none({1e5, 5e4});
  none.failing = {0, 1};
  CHECK_FALSE(none.winner(*exhaustive_of(2)).has_value());
  CHECK_FALSE(none.winner(*racing(expectations_of({1, 1}), {})).has_value());
}

TEST_CASE("racing comes within 2 % of the best of a smooth surface with a third of the trials") {
  CHECK(rc::check([] {
    const auto seed = *rc::gen::inRange(1U, 100000U);
    const Bowl bowl(seed);
    NoisySurface surface(bowl.truth, seed);
    const auto winner = surface.winner(*racing(bowl.expectations, {.patience = 8, .seed = seed}));
    RC_ASSERT(winner.has_value());
    RC_ASSERT(surface.cost(*winner) <= 1.01 * surface.cost(0));
  }));
  int close = 0;
  std::size_t trials = 0;
  constexpr unsigned surfaces = 200;
  for (unsigned seed = 1; seed <= surfaces; ++seed) {
    const Bowl bowl(seed);
    NoisySurface surface(bowl.truth, seed);
    const auto winner = surface.winner(*racing(bowl.expectations, {.patience = 8, .seed = seed}));
    close += surface.cost(winner.value()) <= 1.02 * surface.best() ? 1 : 0;
    trials += surface.tried.size();
  }
  CHECK(close >= 180);
  CHECK(trials / surfaces <= 22);
}

TEST_CASE("what is expected is tried first, and a true expectation is confirmed with few trials") {
  Bowl bowl(7);
  for (std::size_t i = 0; i < bowl.truth.size(); ++i) bowl.expectations.expected_ns[i] = {bowl.truth[i]};
  NoisySurface surface(bowl.truth);
  const auto winner = surface.winner(*racing(bowl.expectations, {}));
  CHECK(surface.cost(winner.value()) <= 1.01 * surface.best());
  CHECK(surface.tried.size() <= 6 + RacingLimits{}.patience);  // the first round and one more
  const auto best =
      static_cast<std::size_t>(std::min_element(bowl.truth.begin(), bowl.truth.end()) - bowl.truth.begin());
  const auto first = racing(bowl.expectations, {})->next();
  CHECK(has(*first, best));
}

TEST_CASE("of configs that nothing tells apart beforehand one is tried before the search goes on to another kind") {
  // Sixteen kinds of tile in eight orders, which change nothing. The fastest kind is not expected to be fast.
  Expectations expectations;
  std::vector<double> truth;
  for (int kind = 0; kind < 16; ++kind)
    for (int order = 0; order < 8; ++order) {
      expectations.position.push_back({0, kind, order});
      expectations.expected_ns.push_back({1e5 * (1 + 0.001 * kind)});
      expectations.legal.push_back({true});
      truth.push_back(kind == 9 ? 0.9e5 : 1e5);
    }
  for (unsigned seed = 0; seed < 10; ++seed) {
    NoisySurface surface(truth, seed);
    const auto search = racing(expectations, {.seed = seed});
    const auto winner = surface.winner(*search);
    REQUIRE(winner.has_value());
    CHECK(truth[*winner] == 0.9e5);
    CHECK(surface.tried.size() < truth.size() / 2);
  }
}

TEST_CASE("the baseline and the candidates to try first are in the first round, whatever is expected of them") {
  Bowl bowl(3);
  bowl.expectations.tried_first = {17, 42};
  bowl.expectations.expected_ns[17] = {1e9};
  const auto first = racing(bowl.expectations, {})->next();
  for (std::size_t candidate : {0U, 17U, 42U}) CHECK(has(*first, candidate));
}

TEST_CASE("racing keeps to its number of trials") {
  for (std::int64_t trials : {1, 2, 5, 9, 100}) {
    const Bowl bowl(11);
    NoisySurface surface(bowl.truth);
    CHECK(surface.winner(*racing(bowl.expectations, {.trials = trials})).has_value());
    CHECK(surface.tried.size() <= static_cast<std::size_t>(trials));
  }
}

TEST_CASE("a search that finishes early brings in nothing more and compares the best so far") {
  const Bowl bowl(5);
  NoisySurface surface(bowl.truth);
  const auto search = racing(bowl.expectations, {});
  surface.after_ask = [&] { search->finish_early(); };
  CHECK(surface.winner(*search).has_value());
  CHECK(surface.tried.size() == 5);
}

TEST_CASE("the same seed and costs give the same trials and winner") {
  const Bowl bowl(23);
  NoisySurface first(bowl.truth), second(bowl.truth);
  CHECK(first.winner(*racing(bowl.expectations, {.seed = 9})) ==
        second.winner(*racing(bowl.expectations, {.seed = 9})));
  CHECK(first.tried == second.tried);
}

TEST_CASE("two tunes of one surface under different noise choose the same candidate, or one within 1 %") {
  int same = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    const Bowl bowl(seed);
    NoisySurface one(bowl.truth, seed), two(bowl.truth, seed + 1000);
    const auto first = one.winner(*racing(bowl.expectations, {.patience = 8}));
    const auto second = two.winner(*racing(bowl.expectations, {.patience = 8}));
    const double ratio = one.cost(first.value()) / two.cost(second.value());
    same += std::abs(std::log(ratio)) < 0.01 ? 1 : 0;
  }
  CHECK(same >= 95);
}

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
