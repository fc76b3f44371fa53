// Parts the intervals of a searched bucket at sizes inside them where another candidate is the fastest.
//
// A config is timed at the end of its stairs, and so the winner at an interval's end need not win below it: stairs of
// other configs end inside, blocks of others may fill the device at its lowest sizes, and a library has stairs of its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tune/candidates.hpp"
#include "tune/conclusion.hpp"
#include "tune/request.hpp"
#include "tune/trials.hpp"

namespace kiln::tune {

/// A candidate at a size of the only open axis.
struct Probe {
  std::size_t candidate = 0;
  std::int64_t size = 0;
};
/// Sizes that part intervals, ascending, with the comparisons there.
using PartingSizes = std::vector<std::pair<std::int64_t, Comparison>>;

/// The winners of a comparison: of all candidates, and of those that need no library.
struct Fastest {
  std::optional<std::size_t> any, own;
};
Fastest fastest_of(const Comparison& comparison, std::span<const std::size_t> of_libraries);

/// Whether another candidate than the winner at the interval's end is faster by more than worth_a_part, with or without
/// libraries.
bool parts_interval(const Comparison& at_size, const Fastest& at_end, std::span<const std::size_t> of_libraries);

/// A bucket of one open axis after its search. `costs[candidate][i]` and `comparisons[i]` are of `ends[i]`, which
/// ascend.
struct SearchedAxis {
  answer::AxisSizes sizes;
  std::span<const std::int64_t> ends;
  std::span<const Comparison> comparisons;
  std::span<const std::vector<Cost>> costs;
  std::span<const std::size_t> of_libraries;
  std::span<const FirstProposal> proposals;
  /// The model's time of a candidate at a size, infinity where it is not legal.
  std::function<double(std::size_t candidate, std::int64_t size)> expected_ns;
};

struct InnerLimits {
  std::size_t sizes = 0;   // for each reason
  std::size_t probes = 0;  // in all
};
/// Long launches are timed at few ends. Returns what to compare between them, ascending: where stairs of other configs
/// end, by the model, and at the last sizes of a library's proposals. Up to `sizes` are a library's, and two thirds as
/// many are ends of stairs. A measured candidate's time at a size is that at the interval's end,
/// scaled as the model says. At a library's size its proposal is compared with the fastest of the interval's end, with
/// and without libraries. Where a stair ends, also with those of the end below and the most_expected fastest there.
std::vector<Probe> inner_probes(const SearchedAxis& searched, const InnerLimits& limits);

/// Compares the fastest few of both ends at each interval's lowest size. Where another than the end's winner is
/// worth_a_part there, further comparisons halve the interval, to find up to which size it is.
class Halving {
 public:
  explicit Halving(const SearchedAxis& searched);
  /// Returns the probes to sample next, those of one size together, or nothing when the search is over. Before the next
  /// call each is reported.
  [[nodiscard]] std::vector<Probe> next();
  /// Takes the samples of a probe. No samples: the candidate cannot be launched at that size.
  void report(const Probe& probe, std::span<const double> samples_ns);
  [[nodiscard]] PartingSizes found() const;

 private:
  struct HalvedInterval {
    std::int64_t low = 0, end = 0;
    std::vector<std::size_t> candidates;
    Fastest at_end;
    std::int64_t size = 0;              // probed next; 0: finished
    std::int64_t holds = 0, fails = 0;  // largest size where another candidate is faster, smallest where none is
    Comparison now, at_holds;
  };
  void take_in(HalvedInterval& interval, const Comparison& comparison) const;
  void settle(HalvedInterval& interval) const;

  std::int64_t multiple_;
  std::vector<std::size_t> of_libraries_;
  std::vector<HalvedInterval> intervals_;
  int rounds_ = 0;
};

/// A tune whose search is over.
struct IntervalsRequest {
  const TuneRequest& request;
  const Candidates& candidates;
  Trials& trials;
  bool at_inner_sizes = true;  // false: halves intervals only
  /// Brings a candidate in, unless it is. Returns false for one that is rejected, or that was not tried and may not be
  /// any more. Throws as Trials::bring_in() does, and then leaves the candidate as it was.
  std::function<bool(std::size_t candidate)> hold;
  /// Rejects a candidate that failed while it was sampled.
  std::function<void(std::size_t candidate, const std::string& failure)> reject;
};
/// Adds sizes to what a search measured, on a single open axis, where they part intervals. Removes the measurements of
/// candidates that are rejected meanwhile. Where memory does not suffice for inner sizes, goes on without them.
void part_intervals(const IntervalsRequest& tune, Measured& measured);

}  // namespace kiln::tune
