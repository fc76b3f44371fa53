#include "tune/relative_times.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln::tune {

std::vector<answer::RelativeTime> relative_times(const Comparison& comparison,
                                                 const std::function<Footprint(std::size_t candidate)>& footprint_of) {
  // tied() takes the baseline first. Without samples it counts as failed.
  std::vector<TimedCandidate> timed_candidates(1);
  std::vector<std::size_t> candidates{0};
  double best_ns = std::numeric_limits<double>::infinity();
  const std::vector<double>* best = nullptr;
  for (const Compared& each : comparison) {
    TimedCandidate timed_candidate{each.samples_ns, footprint_of(each.candidate)};
    std::vector<double> sorted = each.samples_ns;
    // summarise() sorts, and NaN has no order.
    if (std::ranges::any_of(sorted, [](double ns) { return std::isnan(ns); })) continue;
    if (const double ns = summarise(sorted).median_ns; ns < best_ns) {
      best_ns = ns;
      best = &each.samples_ns;
    }
    if (each.candidate == 0) {
      timed_candidates.front() = std::move(timed_candidate);
    } else {
      timed_candidates.push_back(std::move(timed_candidate));
      candidates.push_back(each.candidate);
    }
  }
  std::vector<answer::RelativeTime> result;
  if (best == nullptr) return result;
  const std::vector<std::size_t> ties = tied(timed_candidates);
  for (std::size_t i = 0; i < timed_candidates.size(); ++i) {
    if (timed_candidates[i].samples_ns.empty()) continue;
    const double behind = ratio(timed_candidates[i].samples_ns, *best).median_ns;
    result.push_back({candidates[i], std::max(behind, 1.0), std::ranges::find(ties, i) != ties.end(),
                      timed_candidates[i].footprint.registers});
  }
  return result;
}

}  // namespace kiln::tune
