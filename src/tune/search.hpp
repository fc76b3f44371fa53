// What to try and when to stop. Pure: takes costs and returns decisions, without device, file or clock.
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

/// Returns the median and the order statistics that enclose it with 95 % confidence (binomial, without an assumed
/// distribution: Conover, Practical Nonparametric Statistics, 3.2). With fewer than six samples the interval is their
/// range. Sorts `samples`.
Cost summarise(std::span<double> samples);

/// Multiplies all times of a cost by `factor`.
Cost times(Cost cost, double factor) noexcept;

/// Returns the median of a[i] / b[i] over the rounds that both have, with its interval. Samples of equal index were
/// taken together, so that a lower clock, which slows both, cancels out.
Cost ratio(std::span<const double> a, std::span<const double> b);

/// What a candidate needs of the device. Decides near-ties.
struct Footprint {
  double read_bytes = 0;  // read by all blocks from L2 and memory, by the manifest; 0: unknown
  int registers = 0;      // per thread
};
/// A candidate with its samples, round by round. One that failed has none.
struct TimedCandidate {
  std::vector<double> samples_ns;
  Footprint footprint;
};
/// Returns the winner's index, or nothing when all failed. The rule:
/// 1. The lowest median leads. A candidate ties with it within near_tie, unless the interval of their ratio lies
///    above 1. The baseline (index 0) needs only that interval.
/// 2. Of these, candidates that read more than 1 / much_less_bytes of the least drop out: bandwidth varies from run to
///    run, and slows them more.
/// 3. The baseline wins, else the fewest registers, then the lowest index.
std::optional<std::size_t> choose(std::span<const TimedCandidate> candidates);
/// Returns the indices that are left after step 2 of choose(), ascending.
std::vector<std::size_t> tied(std::span<const TimedCandidate> candidates);

/// A candidate compared at one size, with samples of the same rounds as the others.
struct Compared {
  std::size_t candidate = 0;
  std::vector<double> samples_ns;
};
using Comparison = std::vector<Compared>;
/// Returns the median of its samples, of which there is at least one.
double median_ns(const Compared& compared);

/// A candidate at a size of a bucket, both by index. The last size is the bucket's upper edge.
struct Point {
  std::size_t candidate = 0;
  std::size_t size = 0;
  bool operator==(const Point&) const = default;
};

/// A search's request: bring the candidates in (compile, load, verify) unless they are, then take `rounds` samples of
/// each point. Points take turns, so that a drifting clock affects all alike.
struct Ask {
  std::vector<Point> points;
  std::int64_t rounds = 0;
};

/// Decides what is timed next and when enough is known. Candidates are indices; index 0 is the baseline.
class Search {
 public:
  virtual ~Search() = default;
  /// Returns the next request, or nothing when the search is over. Before the next call each point is reported or its
  /// candidate rejected.
  [[nodiscard]] virtual std::optional<Ask> next() = 0;
  /// Takes the samples of a point. No samples: the candidate cannot be launched at that size.
  virtual void report(Point point, std::span<const double> samples_ns) = 0;
  /// Brings in no further candidate: the last comparison follows.
  virtual void finish_early() = 0;
  /// Removes a candidate that did not compile, gave a wrong result, or failed.
  virtual void reject(std::size_t candidate) = 0;
  /// Whether a later request may name the candidate.
  [[nodiscard]] virtual bool contends(std::size_t candidate) const = 0;
  /// Returns the candidates that next() will likely bring in, likeliest first, so that their compiles can begin.
  [[nodiscard]] virtual std::vector<std::size_t> upcoming() const = 0;
  [[nodiscard]] virtual const Cost& cost(Point point) const = 0;
  /// Returns the last comparison at each size. Empty at a size where no candidate gave a right result.
  [[nodiscard]] virtual std::vector<Comparison> comparisons() const = 0;
};

/// Whether a list of candidates names one.
bool contains(std::span<const std::size_t> candidates, std::size_t candidate) noexcept;

/// What is known of the candidates before any is tried. Vectors are by candidate unless named otherwise.
struct Expectations {
  /// By candidate, then size. Only ratios count. Infinite without an estimate.
  std::vector<std::vector<double>> expected_ns;
  std::vector<std::vector<bool>> legal;  // by candidate, then size; no request names a point that is not legal
  /// Candidates of the first round, whatever their expectation: winners of near buckets and devices, nearest first,
  /// then each library's first.
  std::vector<std::size_t> tried_first;
  /// The implementation, then the index of each parameter's value in its list.
  std::vector<std::vector<std::int64_t>> position;
  /// The candidates that need a library. The search also finds the fastest of the others, for machines without it.
  std::vector<std::size_t> of_libraries;
  /// Those of of_libraries that have kernels beside the library, and so a model.
  std::vector<std::size_t> modelled_libraries;
  /// Where a library's algorithm is worth a first sample, by candidate, then size: near the sizes for which the library
  /// proposed it. Empty: everywhere.
  std::vector<std::vector<bool>> proposed_near;
  std::vector<std::size_t> kernel;  // equal for candidates that share machine code; empty: none do
  bool one_serves_all = false;      // one candidate is to serve all sizes: those that lead at some are timed at all
  [[nodiscard]] std::size_t candidates() const noexcept { return expected_ns.size(); }
  [[nodiscard]] std::size_t sizes() const noexcept { return expected_ns.empty() ? 0 : expected_ns.front().size(); }
};

/// Tries every candidate in order, at each of its sizes, then makes the last comparison.
std::unique_ptr<Search> exhaustive(Expectations expectations);

struct RacingLimits {
  std::size_t compiles_at_once = 16;
  /// Most candidates brought in; 0: no limit. A library's algorithms are half of them at most while kernels are left.
  std::int64_t trials = 0;
  /// The search ends after so many trials that improve neither the best at any size nor the best that needs no library.
  /// Estimates do not tell apart configs that differ in bands or clusters, so that some improvements come late.
  std::int64_t patience = 16;
  std::uint64_t seed = 1;  // of the random newcomers
};
/// Successive elimination. Candidates are tried in the order of their expected time at their most promising size. Each
/// round corrects the expectations of neighbours in the space. A candidate is timed at the sizes where it may win: once
/// if it is far behind. Those that may win at some size enter the last comparison.
std::unique_ptr<Search> racing(Expectations expectations, const RacingLimits& limits);

}  // namespace kiln::tune
