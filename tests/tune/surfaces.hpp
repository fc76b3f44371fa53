// Surfaces of known times, and the searches on them that several tests have.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "answer/portfolio.hpp"
#include "tune/relative_times.hpp"

namespace test {

using namespace kiln::answer;
using namespace kiln::tune;

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
inline Expectations expectations_of(const std::vector<double>& expected,
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
inline std::unique_ptr<Search> exhaustive_of(std::size_t candidates) {
  return exhaustive(expectations_of(std::vector<double>(candidates, 1.0)));
}
inline bool has(const Ask& ask, std::size_t candidate) {
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

}  // namespace test
