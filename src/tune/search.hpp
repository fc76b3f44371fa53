// What to try and when to stop. Pure: costs come in, decisions go out; no device, no file, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace kiln::tune {

/// Nanoseconds of device time: the median and its 95 % interval. A candidate that failed has an infinite median.
struct Cost {
  double median_ns = std::numeric_limits<double>::infinity();
  double low_ns = std::numeric_limits<double>::infinity();
  double high_ns = std::numeric_limits<double>::infinity();
  std::int64_t samples = 0;
  [[nodiscard]] bool failed() const noexcept { return samples == 0; }
};

/// The median of samples and the order statistics that enclose it with 95 % confidence (binomial, so no distribution is assumed:
/// Conover, Practical Nonparametric Statistics, 3.2). With fewer than six samples the interval is their range. Sorts `samples`.
Cost summarise(std::span<double> samples);

/// Decides which candidate is timed next. Candidates are indices; index 0 is the baseline.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// The candidate to verify and time now, or nothing when the search is over.
  [[nodiscard]] virtual std::optional<std::size_t> next() = 0;
  /// The cost of the candidate that next() gave.
  virtual void report(std::size_t candidate, const Cost& cost) = 0;
  /// Candidates that next() may give soon, likeliest first, so that their compiles can begin.
  [[nodiscard]] virtual std::vector<std::size_t> upcoming() const = 0;
};

/// Every candidate once, in order.
std::unique_ptr<Strategy> exhaustive(std::size_t candidates);

/// What the choice looks at, a candidate each.
struct Scored {
  Cost cost;
  int registers = 0;
};
/// The winner's index. The lowest median leads; the baseline (index 0) stays unless the leader beats it beyond the noise, that is
/// unless their intervals are disjoint; among candidates within 1 % of the leader whose intervals overlap its own, the
/// fewest registers win, then the lowest index. Nothing when all failed.
std::optional<std::size_t> choose(std::span<const Scored> candidates);

}  // namespace kiln::tune
