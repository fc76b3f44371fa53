// Strategies on surfaces of known costs, under noise.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "tune/search.hpp"

using kiln::tune::Ask;
using kiln::tune::exhaustive;
using kiln::tune::Outlook;
using kiln::tune::racing;
using kiln::tune::RacingLimits;
using kiln::tune::Search;

namespace {

/// A device that costs what a surface says, with a little noise and, now and then, an interruption.
class NoisySurface {
 public:
  explicit NoisySurface(std::vector<double> truth, unsigned seed = 1, double noise = 0.003)
      : truth_(std::move(truth)), random_(seed), noise_(noise) {}

  /// The winner; `tried` holds how many samples each candidate got.
  std::optional<std::size_t> run(Search& search) {
    while (const auto ask = search.next()) {
      std::map<std::size_t, std::vector<double>> samples;
      for (std::int64_t round = 0; round < ask->rounds; ++round)
        for (std::size_t candidate : ask->candidates) samples[candidate].push_back(sample(truth_[candidate]));
      for (std::size_t candidate : ask->candidates) {
        tried[candidate] += ask->rounds;
        if (failing.contains(candidate))
          search.reject(candidate);
        else
          search.report(candidate, samples[candidate]);
      }
      if (ask->inside && !inside.empty()) report_inside(search, *ask);
      if (after_ask) after_ask();
    }
    return search.winner(std::vector<kiln::tune::Burden>(truth_.size(), {0, 32}));
  }
  [[nodiscard]] double cost(std::size_t candidate) const { return truth_[candidate]; }
  [[nodiscard]] double best() const { return *std::min_element(truth_.begin(), truth_.end()); }

  std::map<std::size_t, std::int64_t> tried;
  std::set<std::size_t> failing, failing_inside;
  std::map<std::size_t, double>
      inside;  // costs at the second length, of those that are legal there; empty where there is none
  std::map<std::size_t, std::int64_t> tried_inside;
  double drift = 0;  // of the clock, a sample
  std::function<void()> after_ask;

 private:
  void report_inside(Search& search, const Ask& ask) {
    for (std::size_t candidate : ask.candidates) {
      if (failing.contains(candidate)) continue;
      std::vector<double> samples;
      for (std::int64_t round = 0; inside.contains(candidate) && round < ask.rounds; ++round)
        samples.push_back(sample(inside.at(candidate)));
      tried_inside[candidate] += static_cast<std::int64_t>(samples.size());
      if (failing_inside.contains(candidate))
        search.reject(candidate);
      else
        search.report_inside(candidate, samples);
    }
  }
  double sample(double truth) {
    clock_ += drift;
    const bool interrupted = std::uniform_int_distribution<int>(0, 60)(random_) == 0;
    return truth * (1 + clock_) * (1 + noise_ * std::abs(normal_(random_)) + (interrupted ? 0.3 : 0));
  }
  std::vector<double> truth_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_{0, 1};
  double noise_, clock_ = 0;
};

/// A smooth bowl over two parameters of eight values each, with some roughness; candidate 0 lies in a corner.
struct Bowl {
  explicit Bowl(unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> place(0, 7), rough(0, 0.03);
    const double x0 = place(random), y0 = place(random);
    for (int x = 0; x < 8; ++x)
      for (int y = 0; y < 8; ++y) {
        truth.push_back(1e5 * (1 + 0.06 * ((x - x0) * (x - x0) + (y - y0) * (y - y0))) * (1 + rough(random)));
        outlook.position.push_back({0, x, y});
        outlook.expected_ns.push_back(1);
      }
  }
  std::vector<double> truth;
  Outlook outlook;
};

}  // namespace

TEST_CASE("exhaustive search tries every candidate, the hopeless ones once") {
  NoisySurface surface({1e5, 5e4, 9e5, 5.2e4, 7e4});
  const auto search = exhaustive(5);
  CHECK(search->upcoming() == std::vector<std::size_t>{0, 1, 2, 3, 4});
  CHECK(surface.run(*search) == 1U);
  CHECK(surface.tried.size() == 5);
  CHECK(surface.tried[2] == 1);
  CHECK(surface.tried[3] > surface.tried[2]);
}

TEST_CASE("candidates of the finals are timed in turns, so that a drifting clock decides nothing") {
  // One after the other, the later one would look 4 % slower; it is 2 % faster.
  NoisySurface surface({1.02e5, 1e5});
  surface.drift = 0.002;
  const auto search = exhaustive(2);
  CHECK(surface.run(*search) == 1U);
}

TEST_CASE(
    "of those that tie at the edge, the one that is fast at the second length wins, and costs stay those of the edge") {
  const std::vector<double> truth = {2e5, 0.98e5, 1e5, 3e5};
  for (const bool races : {false, true}) {
    CAPTURE(races);
    const auto search = races ? racing({{1, 1, 1, 1}, {}, {{0, 0}, {0, 1}, {0, 2}, {0, 3}}, {}}, {}) : exhaustive(4);
    NoisySurface surface(truth);
    surface.inside = {{0, 1.5e5}, {1, 0.96e5}, {2, 0.8e5}, {3, 1e3}};
    CHECK(surface.run(*search) == 2U);
    for (const std::size_t each : {1U, 2U})
      CHECK(search->cost(each).median_ns == doctest::Approx(truth[each]).epsilon(0.01));
    CHECK(search->weighed_ns(1) / search->weighed_ns(2) == doctest::Approx(std::sqrt(0.98 * 0.96 / 0.8)).epsilon(0.01));
    CHECK_FALSE(surface.tried_inside.contains(3));  // no finalist
    for (const auto& [candidate, times] : surface.tried_inside) CHECK(times < surface.tried[candidate]);
  }
}

TEST_CASE("where the baseline is the better one at both lengths together it stays") {
  NoisySurface surface({1e5, 0.98e5});
  surface.inside = {{0, 0.8e5}, {1, 0.96e5}};
  CHECK(surface.run(*exhaustive(2)) == 0U);
}

TEST_CASE("a config that is not legal at the second length has the baseline's time there") {
  NoisySurface surface({1.5e5, 0.98e5, 1e5, 0.99e5});
  SUBCASE("and loses to one of about its own time that is") {
    surface.inside = {{0, 1.3e5}, {2, 0.9e5}};
    CHECK(surface.run(*exhaustive(4)) == 2U);
  }
  SUBCASE("and wins where all that are fast are like it") {
    surface.inside = {{0, 1.3e5}};
    CHECK(surface.run(*exhaustive(4)) == 1U);
  }
  SUBCASE("or is out where the baseline has none, and another has") {
    surface.inside = {{2, 0.9e5}};
    CHECK(surface.run(*exhaustive(4)) == 2U);
  }
  SUBCASE("and is compared at the edge where none has any") {
    surface.inside = {{7, 1.0}};
    CHECK(surface.run(*exhaustive(4)) == 1U);
  }
}

TEST_CASE("what fails at the second length never wins, nor do its samples there count for others") {
  NoisySurface surface({1.5e5, 0.99e5, 1e5});
  surface.inside = {{0, 1.3e5}, {1, 0.9e5}};
  surface.failing_inside = {1};
  CHECK(surface.run(*exhaustive(3)) == 2U);
  NoisySurface alone({1.5e5, 0.9e5});
  alone.inside = {{0, 1.3e5}, {1, 0.9e5}};
  alone.failing_inside = {0, 1};
  CHECK_FALSE(alone.run(*exhaustive(2)).has_value());
}

TEST_CASE("racing does not leave the lead to those that were timed before the clock fell") {
  // Six candidates are tried before the best one, which by then looks slower than the baseline did.
  Outlook outlook;
  std::vector<double> truth;
  for (int i = 0; i < 12; ++i) {
    truth.push_back(i == 7 ? 0.95e5 : 1e5 + 1e3 * i);
    outlook.expected_ns.push_back(i < 7 ? 1 : i == 7 ? 1.1 : 2);
    outlook.position.push_back({0, i});
  }
  NoisySurface surface(truth);
  surface.drift = 0.01;
  CHECK(surface.run(*racing(outlook, {})) == 7U);
}

TEST_CASE("what only ran in heats is told by the clock of the finals, beside which it would look fast") {
  Outlook outlook;
  std::vector<double> truth;
  for (int i = 0; i < 24; ++i) {
    truth.push_back(i == 5 ? 0.8e5 : 1e5 + 1e3 * i);
    outlook.expected_ns.push_back(1 + 0.01 * i);
    outlook.position.push_back({0, i});
  }
  NoisySurface surface(truth);
  surface.drift = 0.01;
  const auto search = racing(outlook, {});
  CHECK(surface.run(*search) == 5U);
  std::size_t told = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (search->cost(i).failed()) continue;
    ++told;
    CHECK(search->cost(i).median_ns / search->cost(5).median_ns == doctest::Approx(truth[i] / truth[5]).epsilon(0.1));
  }
  CHECK(told > 5);
}

TEST_CASE("costs stay finite where a clock is too coarse to see any") {
  Outlook outlook;
  for (int i = 0; i < 24; ++i) {
    outlook.expected_ns.push_back(1 + 0.01 * i);
    outlook.position.push_back({0, i});
  }
  NoisySurface surface(std::vector<double>(24, 0.0));
  const auto search = racing(outlook, {});
  CHECK(surface.run(*search).has_value());
  for (std::size_t i = 0; i < 24; ++i)
    if (!search->cost(i).failed()) CHECK(std::isfinite(search->cost(i).high_ns));
}

TEST_CASE("a rejected candidate never wins, nor does anything when all are rejected") {
  NoisySurface surface({1e5, 5e4, 6e4});
  surface.failing = {1};
  CHECK(surface.run(*exhaustive(3)) == 2U);
  NoisySurface none({1e5, 5e4});
  none.failing = {0, 1};
  CHECK_FALSE(none.run(*exhaustive(2)).has_value());
  Outlook outlook{{1, 1}, {}, {{0, 0}, {0, 1}}};
  CHECK_FALSE(none.run(*racing(outlook, {})).has_value());
}

TEST_CASE("racing comes within 2 % of the best of a smooth surface with a third of the trials") {
  CHECK(rc::check([] {
    const auto seed = *rc::gen::inRange(1U, 100000U);
    const Bowl bowl(seed);
    NoisySurface surface(bowl.truth, seed);
    const auto winner = surface.run(*racing(bowl.outlook, {.patience = 8, .seed = seed}));
    RC_ASSERT(winner.has_value());
    RC_ASSERT(surface.cost(*winner) <= 1.01 * surface.cost(0));
  }));
  int close = 0;
  std::size_t trials = 0;
  constexpr unsigned surfaces = 200;
  for (unsigned seed = 1; seed <= surfaces; ++seed) {
    const Bowl bowl(seed);
    NoisySurface surface(bowl.truth, seed);
    const auto winner = surface.run(*racing(bowl.outlook, {.patience = 8, .seed = seed}));
    close += surface.cost(winner.value()) <= 1.02 * surface.best() ? 1 : 0;
    trials += surface.tried.size();
  }
  CHECK(close >= 180);
  CHECK(trials / surfaces <= 22);
}

TEST_CASE("what is expected is tried first, and a true expectation is confirmed with few trials") {
  Bowl bowl(7);
  bowl.outlook.expected_ns = bowl.truth;
  NoisySurface surface(bowl.truth);
  const auto winner = surface.run(*racing(bowl.outlook, {}));
  CHECK(surface.cost(winner.value()) <= 1.01 * surface.best());
  CHECK(surface.tried.size() <= 6 + RacingLimits{}.patience);  // the first heat and one more
  const auto best =
      static_cast<std::size_t>(std::min_element(bowl.truth.begin(), bowl.truth.end()) - bowl.truth.begin());
  const auto first = racing(bowl.outlook, {})->next();
  CHECK(std::find(first->candidates.begin(), first->candidates.end(), best) != first->candidates.end());
}

TEST_CASE("of configs that nothing tells apart beforehand one is tried before the search goes on to another kind") {
  // Sixteen kinds of tile by eight orders, which change nothing; the fastest kind is expected to be among the slow ones.
  Outlook outlook;
  std::vector<double> truth;
  for (int kind = 0; kind < 16; ++kind)
    for (int order = 0; order < 8; ++order) {
      outlook.position.push_back({0, kind, order});
      outlook.expected_ns.push_back(1e5 * (1 + 0.001 * kind));
      truth.push_back(kind == 9 ? 0.9e5 : 1e5);
    }
  for (unsigned seed = 0; seed < 10; ++seed) {
    NoisySurface surface(truth, seed);
    const auto search = racing(outlook, {.seed = seed});
    const auto winner = surface.run(*search);
    REQUIRE(winner.has_value());
    CHECK(truth[*winner] == 0.9e5);
    CHECK(surface.tried.size() < truth.size() / 2);
  }
}

TEST_CASE("the baseline and the favourites are in the first heat, whatever is expected of them") {
  Bowl bowl(3);
  bowl.outlook.favourites = {17, 42};
  bowl.outlook.expected_ns[17] = 1e9;
  const auto first = racing(bowl.outlook, {})->next();
  for (std::size_t candidate : {0U, 17U, 42U})
    CHECK(std::find(first->candidates.begin(), first->candidates.end(), candidate) != first->candidates.end());
}

TEST_CASE("racing keeps to its number of trials") {
  for (std::int64_t trials : {1, 2, 5, 9, 100}) {
    const Bowl bowl(11);
    NoisySurface surface(bowl.truth);
    CHECK(surface.run(*racing(bowl.outlook, {.trials = trials})).has_value());
    CHECK(surface.tried.size() <= static_cast<std::size_t>(trials));
  }
}

TEST_CASE("in a hurry the best so far meet in the finals and nothing more is brought in") {
  const Bowl bowl(5);
  NoisySurface surface(bowl.truth);
  const auto search = racing(bowl.outlook, {});
  surface.after_ask = [&] { search->hurry(); };
  CHECK(surface.run(*search).has_value());
  CHECK(surface.tried.size() == 5);
}

TEST_CASE("the same seed and costs give the same trials and winner") {
  const Bowl bowl(23);
  NoisySurface first(bowl.truth), second(bowl.truth);
  CHECK(first.run(*racing(bowl.outlook, {.seed = 9})) == second.run(*racing(bowl.outlook, {.seed = 9})));
  CHECK(first.tried == second.tried);
}

TEST_CASE("two tunes of one surface under different noise choose the same candidate, or one within 1 %") {
  int same = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    const Bowl bowl(seed);
    NoisySurface one(bowl.truth, seed), two(bowl.truth, seed + 1000);
    const auto first = one.run(*racing(bowl.outlook, {.patience = 8}));
    const auto second = two.run(*racing(bowl.outlook, {.patience = 8}));
    const double ratio = one.cost(first.value()) / two.cost(second.value());
    same += std::abs(std::log(ratio)) < 0.01 ? 1 : 0;
  }
  CHECK(same >= 95);
}
