// Compares launches of one kernel on a bench of known times.
#include "tune/launch_choice.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace kiln;
using namespace kiln::tune;

namespace {

constexpr std::size_t size = 3;  // at which they are compared

/// A bench with set times for chains and single runs, with a little noise.
class KnownBench final : public Bench {
 public:
  explicit KnownBench(std::map<std::size_t, double> chain_ns) : chain_ns_(std::move(chain_ns)) {}

  void set_sizes(std::vector<Problem>) override {}
  Admission admit(std::size_t candidate, const Trial& trial) override {
    configs[candidate] = trial.variant.config;
    Admission admission;
    admission.verdict = wrong.contains(candidate) ? store::Verdict::wrong_result : store::Verdict::ok;
    admission.reason = wrong.contains(candidate) ? "too early" : "";
    if (!wrong.contains(candidate)) held.insert(candidate);
    return admission;
  }
  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) override {
    return taken(points, rounds, [](std::size_t) { return 9000.0; });
  }
  std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) override {
    return taken(points, rounds, [&](std::size_t candidate) { return chain_ns_.at(candidate); });
  }
  void drop(std::size_t candidate) override { held.erase(candidate); }
  [[nodiscard]] double prepared_ns() const override { return 0; }

  std::set<std::size_t> wrong, failing, held;
  std::map<std::size_t, manifest::Config> configs;

 private:
  template <typename Truth>
  std::vector<Samples> taken(std::span<const Point> points, std::int64_t rounds, const Truth& truth) {
    std::vector<Samples> samples(points.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      CHECK(points[i].size == size);
      if (failing.contains(points[i].candidate)) samples[i].failure = "it broke";
      for (std::int64_t round = 0; round < rounds && samples[i].failure.empty(); ++round)
        samples[i].ns.push_back(truth(points[i].candidate) * std::uniform_real_distribution<double>(1, 1.01)(random_));
    }
    return samples;
  }
  std::map<std::size_t, double> chain_ns_;
  std::mt19937 random_{7};
};

const manifest::Implementation bare_implementation;
const std::vector<manifest::Config> launches = {{128, 0}, {128, 1}};

LaunchChoice choice_on(KnownBench& bench) {
  return choose_launch(bench, 40, size, {bare_implementation, {}, {}}, launches);
}

}  // namespace

TEST_CASE("the launch that is faster in a chain is chosen, with what it takes alone beside the usual one") {
  KnownBench bench({{40, 3000}, {41, 2400}});
  const LaunchChoice choice = choice_on(bench);
  CHECK(choice.chosen == 1);
  CHECK(choice.of_usual.median_ns == doctest::Approx(0.8).epsilon(0.02));
  CHECK(choice.apart.median_ns == doctest::Approx(1).epsilon(0.01));
  CHECK(bench.configs.at(41) == launches[1]);
  CHECK(bench.held.empty());
}

TEST_CASE("the usual launch stays when the other is slower, or no faster than the noise") {
  for (const double other : {3300.0, 3000.0}) {
    KnownBench bench({{40, 3000}, {41, other}});
    CHECK(choice_on(bench).chosen == 0);
  }
}

TEST_CASE("a launch that comes out wrong or fails is not chosen, and the reason is kept") {
  KnownBench wrong({{40, 3000}, {41, 1000}});
  wrong.wrong = {41};
  const LaunchChoice refused = choice_on(wrong);
  CHECK(refused.chosen == 0);
  CHECK(refused.trials[1].admission.verdict == store::Verdict::wrong_result);
  CHECK(refused.trials[1].admission.reason == "too early");

  KnownBench broken({{40, 3000}, {41, 1000}});
  broken.failing = {41};
  const LaunchChoice failed = choice_on(broken);
  CHECK(failed.chosen == 0);
  CHECK(failed.trials[1].admission.verdict == store::Verdict::launch_failed);
  CHECK(failed.trials[1].admission.reason == "it broke");

  KnownBench usual({{40, 3000}, {41, 1000}});
  usual.failing = {40};
  CHECK(choice_on(usual).chosen == 0);
}
