// What to try and when to stop. Pure: costs come in, decisions go out; no device, no file, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kiln/options.hpp"

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

/// Of what takes `factor` times as long.
Cost times(Cost cost, double factor) noexcept;

/// How many times as long `a` took as `b`: the median over the rounds that both have, and its interval. Samples of one place were taken
/// side by side, so that what slowed both, such as a clock, falls out.
Cost ratio(std::span<const double> a, std::span<const double> b);

/// The geometric mean of what a candidate took at two lengths, round by round. The ratio of two candidates' means is the mean of their
/// ratios at each length, so that neither length weighs more, however much longer it takes.
std::vector<double> geometric_mean(std::span<const double> a, std::span<const double> b);

/// What a candidate asks of the device, by which near-ties are decided.
struct Burden {
  double read_bytes = 0;  // by its manifest, what all blocks read of L2 and memory; 0: not known
  int registers = 0;      // a thread
};
/// What the choice looks at, a candidate each: samples round by round, or what stands for them, none of one that failed.
struct Finalist {
  std::vector<double> samples_ns;
  Burden burden;
};
/// The winner's index. The lowest median leads. Candidates within 1 % of it and not slower beyond the noise, that is unless the interval
/// of their ratio lies above 1, tie with it, and the baseline (index 0) does within the noise however far it is behind. Of them those
/// are left that read within a ninth of the least: what a clock that gives way to power, or a neighbour on the device, leaves of L2 and
/// memory differs from run to run, and who reads less feels it less. Then the baseline wins, else the fewest registers, then the lowest index. Nothing when all failed.
std::optional<std::size_t> choose(std::span<const Finalist> candidates);

/// What a search asks of the bench: to bring these candidates in if they are not yet (compile, load, verify), then `rounds` samples of
/// each, interleaved, so that a clock that drifts meets them all alike.
struct Ask {
  std::vector<std::size_t> candidates;
  std::int64_t rounds = 0;
  bool inside = false;  // as many again at the bucket's second length, if it has one, reported apart
};

/// Decides what is timed next and when enough is known. Candidates are indices; index 0 is the baseline.
class Search {
 public:
  virtual ~Search() = default;
  /// Nothing when the search is over. Each candidate of an ask is reported or rejected before the next one.
  [[nodiscard]] virtual std::optional<Ask> next() = 0;
  virtual void report(std::size_t candidate, std::span<const double> samples_ns) = 0;
  /// Of an Ask::inside, after report(): no samples of one that is not legal there. Never called where the bucket has one length only.
  virtual void report_inside(std::size_t candidate, std::span<const double> samples_ns) = 0;
  /// Time is short: nothing more is brought in, and the finals follow.
  virtual void hurry() = 0;
  /// It did not compile, came out wrong, or failed.
  virtual void reject(std::size_t candidate) = 0;
  /// Whether it may be asked for again.
  [[nodiscard]] virtual bool contends(std::size_t candidate) const = 0;
  /// What next() will likely bring in, likeliest first, so that compiles can begin: none that may well not be tried.
  [[nodiscard]] virtual std::vector<std::size_t> upcoming() const = 0;
  /// At the bucket's upper edge.
  [[nodiscard]] virtual const Cost& cost(std::size_t candidate) const = 0;
  /// The same, of one that was sampled at the second length as it compares with the leader at both.
  [[nodiscard]] virtual double weighed_ns(std::size_t candidate) const = 0;
  /// choose() among those that came as far as the last comparison, whose samples were taken side by side.
  [[nodiscard]] virtual std::optional<std::size_t> winner(std::span<const Burden> burdens) const = 0;
};

/// Every candidate once, in order, each with samples for an interval of its own; then the finals.
std::unique_ptr<Search> exhaustive(std::size_t candidates);

/// What is known of the candidates before any is tried.
struct Outlook {
  std::vector<double> expected_ns;      // one a candidate; their ratios count, their scale does not
  std::vector<std::size_t> favourites;  // what won in buckets and on devices near this one, nearest first
  std::vector<std::vector<std::int64_t>>
      position;                           // implementation, then the place of each parameter's value in its list
  std::vector<std::size_t> of_libraries;  // those that another may have to stand in for
};

struct RacingLimits {
  std::int64_t trials = 0;  // candidates brought in at most; 0: no limit
  /// Trials in a row that improve neither on the leader nor on the best that needs no library, before they are believed: estimates do
  /// not tell apart those that differ in their bands or clusters.
  std::int64_t patience = 16;
  std::uint64_t seed = 1;  // of the draws that look away from what is expected
};
/// Successive elimination: candidates enter in the order of what is expected of them, corrected after each heat by what their
/// neighbours in the space turned out to cost; hopeless ones get a few samples, and those that may win meet in the finals.
std::unique_ptr<Search> racing(Outlook outlook, const RacingLimits& limits);

}  // namespace kiln::tune
