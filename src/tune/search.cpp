#include "tune/search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kiln::tune {
namespace {

class Exhaustive final : public Strategy {
 public:
  explicit Exhaustive(std::size_t candidates) : candidates_(candidates) {}
  std::optional<std::size_t> next() override {
    if (next_ == candidates_) return std::nullopt;
    return next_++;
  }
  void report(std::size_t /*candidate*/, const Cost& /*cost*/) override {}
  [[nodiscard]] std::vector<std::size_t> upcoming() const override {
    std::vector<std::size_t> rest(candidates_ - next_);
    std::iota(rest.begin(), rest.end(), next_);
    return rest;
  }

 private:
  std::size_t candidates_;
  std::size_t next_ = 0;
};

constexpr double near_tie = 1.01;

bool ties_with(const Cost& cost, const Cost& leader) {
  return !cost.failed() && cost.median_ns <= near_tie * leader.median_ns && cost.low_ns <= leader.high_ns;
}

}  // namespace

Cost summarise(std::span<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  Cost cost;
  cost.samples = static_cast<std::int64_t>(n);
  cost.median_ns = n % 2 == 1 ? samples[n / 2] : 0.5 * (samples[n / 2 - 1] + samples[n / 2]);
  std::size_t low = 0;
  if (n >= 6) {
    // The count of samples under the median is binomial(n, 1/2): mean n/2, standard deviation sqrt(n)/2. The rank is rounded outwards,
    // so that the interval holds the median in 95 of 100 cases or more; ranks begin at 1.
    const double rank = std::floor(0.5 * static_cast<double>(n) - 1.96 * 0.5 * std::sqrt(static_cast<double>(n)));
    low = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
  }
  cost.low_ns = samples[low];
  cost.high_ns = samples[n - 1 - low];
  return cost;
}

std::unique_ptr<Strategy> exhaustive(std::size_t candidates) { return std::make_unique<Exhaustive>(candidates); }

std::optional<std::size_t> choose(std::span<const Scored> candidates) {
  const auto leader = std::min_element(candidates.begin(), candidates.end(), [](const Scored& a, const Scored& b) {
    return a.cost.median_ns < b.cost.median_ns;
  });
  if (leader == candidates.end() || leader->cost.failed()) return std::nullopt;
  const Cost& baseline = candidates.front().cost;
  if (!baseline.failed() && leader->cost.high_ns >= baseline.low_ns) return 0;
  std::size_t best = static_cast<std::size_t>(leader - candidates.begin());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool lighter = candidates[i].registers < candidates[best].registers ||
                         (candidates[i].registers == candidates[best].registers && i < best);
    if (ties_with(candidates[i].cost, leader->cost) && lighter) best = i;
  }
  return best;
}

}  // namespace kiln::tune
