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

/// What a candidate asks of the device, by which near-ties are decided.
struct Footprint {
  double read_bytes = 0;  // by its manifest, what all blocks read of L2 and memory; 0: not known
  int registers = 0;      // a thread
};
/// What the choice looks at, a candidate each: samples round by round, or what stands for them, none of one that failed.
struct Finalist {
  std::vector<double> samples_ns;
  Footprint footprint;
};
/// The winner's index. The lowest median leads. Candidates within 1 % of it and not slower beyond the noise, that is unless the interval
/// of their ratio lies above 1, tie with it, and the baseline (index 0) does within the noise however far it is behind. Of them those
/// are left that read within a ninth of the least: what a clock that gives way to power, or a neighbour on the device, leaves of L2 and
/// memory differs from run to run, and who reads less feels it less. Then the baseline wins, else the fewest registers, then the lowest index. Nothing when all failed.
std::optional<std::size_t> choose(std::span<const Finalist> candidates);
/// Those that tie so, in order, before the last sentence decides.
std::vector<std::size_t> tied(std::span<const Finalist> candidates);

/// The candidates that were compared at one length, with samples of the same rounds.
struct Compared {
  std::size_t candidate = 0;
  std::vector<double> samples_ns;
};
using Comparison = std::vector<Compared>;

/// A candidate at one of the lengths of a bucket, both by number. The last length is the bucket's upper edge.
struct Point {
  std::size_t candidate = 0;
  std::size_t length = 0;
  bool operator==(const Point&) const = default;
};

/// What a search asks of the bench: to bring these candidates in if they are not yet (compile, load, verify), then `rounds` samples of
/// each point, interleaved, so that a clock that drifts meets them all alike.
struct Ask {
  std::vector<Point> points;
  std::int64_t rounds = 0;
};

/// Decides what is timed next and when enough is known. Candidates are indices; index 0 is the baseline.
class Search {
 public:
  virtual ~Search() = default;
  /// Nothing when the search is over. Each point of an ask is reported, or its candidate rejected, before the next one.
  [[nodiscard]] virtual std::optional<Ask> next() = 0;
  /// No samples: it could not be launched at that length.
  virtual void report(Point point, std::span<const double> samples_ns) = 0;
  /// Time is short: nothing more is brought in, and the last comparison follows.
  virtual void hurry() = 0;
  /// It did not compile, came out wrong, or failed.
  virtual void reject(std::size_t candidate) = 0;
  /// Whether it may be asked for again.
  [[nodiscard]] virtual bool contends(std::size_t candidate) const = 0;
  /// What next() will likely bring in, likeliest first, so that compiles can begin: none that may well not be tried.
  [[nodiscard]] virtual std::vector<std::size_t> upcoming() const = 0;
  [[nodiscard]] virtual const Cost& cost(Point point) const = 0;
  /// By length, what came as far as the last comparison there, whose samples were taken side by side. Empty where nothing came out right.
  [[nodiscard]] virtual std::vector<Comparison> comparisons() const = 0;
};

/// What is known of the candidates before any is tried.
struct Expectations {
  /// By candidate, then length: nanoseconds, whose ratios count, not their scale. Infinite where no estimate can be made.
  std::vector<std::vector<double>> expected_ns;
  std::vector<std::vector<bool>> legal;  // the same; what is not legal at a length is not asked for there
  std::vector<std::size_t> favourites;   // what won in buckets and on devices near this one, nearest first
  std::vector<std::vector<std::int64_t>>
      position;                           // implementation, then the place of each parameter's value in its list
  std::vector<std::size_t> of_libraries;  // candidates that another may have to stand in for
  std::vector<std::size_t> kernel;        // by candidate: equal where they share machine code; empty where none do
  [[nodiscard]] std::size_t candidates() const noexcept { return expected_ns.size(); }
  [[nodiscard]] std::size_t lengths() const noexcept { return expected_ns.empty() ? 0 : expected_ns.front().size(); }
};

/// Every candidate once, in order, at each of its lengths, with samples for intervals of its own; then the last comparison.
std::unique_ptr<Search> exhaustive(Expectations expectations);

struct RacingLimits {
  std::size_t compiles_at_once = 16;
  std::int64_t trials = 0;  // candidates brought in at most; 0: no limit
  /// Trials in a row that improve neither on the best at any length nor on the best that needs no library, before they are believed:
  /// estimates do not tell apart those that differ in their bands or clusters.
  std::int64_t patience = 16;
  std::uint64_t seed = 1;  // of the draws that look away from what is expected
};
/// Successive elimination: candidates enter in the order of what is expected of them at the length where they promise most, corrected
/// after each round of newcomers by what their neighbours in the space turned out to cost. Each is timed at the lengths where it may win;
/// hopeless ones get a sample, and those that may win somewhere meet in the last comparison.
std::unique_ptr<Search> racing(Expectations expectations, const RacingLimits& limits);

}  // namespace kiln::tune
