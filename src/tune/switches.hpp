// Finds the size between two compared sizes at which another candidate becomes the fastest. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tune/search.hpp"

namespace kiln::tune {

/// A candidate at a size of the only open axis.
struct Probe {
  std::size_t candidate = 0;
  std::int64_t size = 0;
};

/// The fastest candidate at an interval's end need not be the fastest at its lowest size: another one's blocks may fill the device there, and a
/// library has stairs of its own. So the fastest few of both ends are compared at each interval's lowest size. Where the end's winner is more
/// than 1.5 % behind there, with or without libraries, two further comparisons halve the interval.
class Switches {
 public:
  /// `low`: the bucket's lowest size. `ends` ascend; `comparisons[i]` was taken at `ends[i]`. Sizes are multiples of `multiple`.
  Switches(std::int64_t low, std::int64_t multiple, std::span<const std::int64_t> ends,
           std::span<const Comparison> comparisons, std::span<const std::size_t> of_libraries);
  /// Returns the points to sample next, those of one size together, or nothing when the search is over. Before the next call each is
  /// reported.
  [[nodiscard]] std::vector<Probe> next();
  /// Takes the samples of a probe. No samples: the candidate cannot be launched at that size.
  void report(const Probe& probe, std::span<const double> samples_ns);
  /// Returns the sizes that part intervals, ascending, with the comparisons there.
  [[nodiscard]] std::vector<std::pair<std::int64_t, Comparison>> found() const;

 private:
  struct Interval {
    std::int64_t low = 0, end = 0;
    std::vector<std::size_t> candidates;
    std::size_t first = 0, first_own = 0;  // the fastest at the end, with and without libraries
    std::int64_t size = 0;                 // probed next; 0: finished
    std::int64_t holds = 0, fails = 0;     // largest size where another candidate is faster, smallest where none is
    Comparison now, at_holds;
  };
  void settle(Interval& interval) const;
  [[nodiscard]] bool is_other_faster(const Interval& interval) const;
  [[nodiscard]] bool is_library(std::size_t candidate) const;
  [[nodiscard]] std::size_t fastest(const Comparison& comparison, bool with_libraries) const;
  void take_in(Interval& interval, const Comparison& comparison) const;

  std::int64_t multiple_;
  std::vector<std::size_t> of_libraries_;
  std::vector<Interval> intervals_;
  int rounds_ = 0;
};

}  // namespace kiln::tune
