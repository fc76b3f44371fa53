// Between two lengths at which candidates were compared: the size where another one becomes the fastest. Pure.
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

/// What is fastest at an interval's end need not be just above the end before: another one's blocks may still fill the device there, and a
/// library has stairs of its own. So at each interval's lowest size the fastest few of both its ends are compared; where what wins at the
/// end is behind there by more than 1.5 %, with libraries or without, two further comparisons halve the interval.
class Switches {
 public:
  /// `ends` ascend; `comparisons[i]` was taken at `ends[i]`. `low`: the lowest size of all. Sizes are multiples of `multiple`.
  Switches(std::int64_t low, std::int64_t multiple, std::span<const std::int64_t> ends,
           std::span<const Comparison> comparisons, std::span<const std::size_t> of_libraries);
  /// What to sample next, those of one size side by side; nothing when it is over. All of it is reported before the next call.
  [[nodiscard]] std::vector<Probe> next();
  /// No samples where it cannot be launched.
  void report(const Probe& probe, std::span<const double> samples_ns);
  /// Sizes that part intervals, ascending, with what was compared there.
  [[nodiscard]] std::vector<std::pair<std::int64_t, Comparison>> found() const;

 private:
  struct Interval {
    std::int64_t low = 0, end = 0;
    std::vector<std::size_t> candidates;
    std::size_t first = 0, first_own = 0;  // the fastest at the end, and of those that need no library
    std::int64_t size = 0;                 // probed next; 0: over
    std::int64_t holds = 0, fails = 0;     // largest size where another one is faster, smallest where none is
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
