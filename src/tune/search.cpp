#include "tune/search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tune/tolerances.hpp"

namespace kiln {

std::string_view to_string(Strategy strategy) noexcept {
  return strategy == Strategy::exhaustive ? "exhaustive" : "racing";
}

}  // namespace kiln

namespace kiln::tune {
namespace {

double median_of(const TimedCandidate& candidate) {
  std::vector<double> sorted = candidate.samples_ns;
  return summarise(sorted).median_ns;
}

}  // namespace

double median_ns(const Compared& compared) {
  std::vector<double> samples = compared.samples_ns;
  return summarise(samples).median_ns;
}

Cost summarise(std::span<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  Cost cost;
  cost.samples = static_cast<std::int64_t>(n);
  cost.median_ns = n % 2 == 1 ? samples[n / 2] : 0.5 * (samples[n / 2 - 1] + samples[n / 2]);
  std::size_t low = 0;
  if (n >= least_for_confidence) {
    // The count of samples under the median is binomial(n, 1/2): mean n/2, standard deviation sqrt(n)/2. Rounding the
    // rank outwards keeps the confidence at 95 % or more. Ranks begin at 1.
    const double rank = std::floor(0.5 * static_cast<double>(n) - 1.96 * 0.5 * std::sqrt(static_cast<double>(n)));
    low = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
  }
  cost.low_ns = samples[low];
  cost.high_ns = samples[n - 1 - low];
  return cost;
}

Cost times(Cost cost, double factor) noexcept {
  cost.median_ns *= factor;
  cost.low_ns *= factor;
  cost.high_ns *= factor;
  return cost;
}

Cost ratio(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] = a[i] / std::max(b[i], 1.0);
  return summarise(ratios);
}

bool contains(std::span<const std::size_t> candidates, std::size_t candidate) noexcept {
  return std::ranges::find(candidates, candidate) != candidates.end();
}

std::vector<std::size_t> tied(std::span<const TimedCandidate> candidates) {
  const auto leader =
      std::min_element(candidates.begin(), candidates.end(),
                       [](const TimedCandidate& a, const TimedCandidate& b) { return median_of(a) < median_of(b); });
  std::vector<std::size_t> tied;
  if (leader == candidates.end() || leader->samples_ns.empty()) return tied;
  double least_bytes = std::numeric_limits<double>::infinity();  // of those with known bytes
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].samples_ns.empty()) continue;
    const Cost behind = ratio(candidates[i].samples_ns, leader->samples_ns);
    if (behind.low_ns > 1 || (i > 0 && behind.median_ns > near_tie)) continue;
    tied.push_back(i);
    if (candidates[i].footprint.read_bytes > 0) least_bytes = std::min(least_bytes, candidates[i].footprint.read_bytes);
  }
  std::erase_if(tied,
                [&](std::size_t i) { return least_bytes < much_less_bytes * candidates[i].footprint.read_bytes; });
  return tied;
}

std::optional<std::size_t> choose(std::span<const TimedCandidate> candidates) {
  const std::vector<std::size_t> ties = tied(candidates);
  if (ties.empty()) return std::nullopt;
  if (ties.front() == 0) return 0;
  return *std::min_element(ties.begin(), ties.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(candidates[a].footprint.registers, a) < std::pair(candidates[b].footprint.registers, b);
  });
}

}  // namespace kiln::tune
