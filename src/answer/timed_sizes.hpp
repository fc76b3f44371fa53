// The sizes of a bucket at which its candidates are timed, and the interval that each stands for. Pure.
// A stair of a config is a range of sizes with equal time, because the number of waves of blocks is equal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "answer/portfolio.hpp"
#include "manifest/region.hpp"

namespace kiln::answer {

/// Ends of each open axis, and all their combinations. A combination stands for the sizes above the next smaller one,
/// up to its own: at its own size a config has the most blocks, so that it is timed at the end of its stairs.
struct TimedSizes {
  std::vector<std::size_t> axes;                // the open ones
  std::vector<std::vector<std::int64_t>> ends;  // of each open axis, ascending; the last is the bucket's upper edge
  std::vector<Problem> problems;                // the last axis varies fastest; the last is the bucket
};

/// Returns ends that part a bucket evenly, at least finest_step apart: at most most_ends() of each open axis, and at
/// most `at_most`. One size where no axis is open.
TimedSizes even_sizes(const manifest::Op& op, const Problem& bucket, std::size_t at_most);
/// Returns `sizes` with more ends of its only open axis.
TimedSizes with_ends(const Problem& bucket, TimedSizes sizes, std::span<const std::int64_t> ends);

/// The sizes of one axis in a bucket.
struct AxisSizes {
  std::int64_t low = 0, high = 0, multiple = 1;
  /// Returns at most `parts` sizes, ascending, that part the axis evenly: multiples of `multiple`, and `high`.
  [[nodiscard]] std::vector<std::int64_t> evenly(std::int64_t parts) const;
};
AxisSizes sizes_of(const manifest::Op& op, const Problem& bucket, std::size_t axis);
/// Returns at most `at_most` of the sizes, spread evenly over them.
std::vector<std::int64_t> some_of(std::span<const std::int64_t> sizes, std::size_t at_most);

/// Returns up to `at_most` further ends of one axis, by the model. `ns[c][i]`: expected time of config c at `sizes[i]`,
/// which ascend and include all `ends`. Each step looks for the size where the config that is fastest at the next end
/// is furthest behind the fastest one. It adds the end of the fastest config's stair there. Stops when the loss is
/// under worth_a_part.
std::vector<std::int64_t> stairs(std::span<const std::int64_t> sizes, std::span<const std::vector<double>> ns,
                                 std::vector<std::int64_t> ends, std::size_t at_most);

/// Sizes that one candidate serves. Its time is that of `size`, at their upper ends.
struct Interval {
  manifest::Region region;
  std::size_t candidate = 0;
  std::size_t size = 0;
};
/// Joins neighbouring sizes of one candidate, in ascending order. A size without a candidate gets that of the next
/// larger size, else of the next smaller. Empty where no size has a candidate.
std::vector<Interval> intervals(const manifest::Op& op, const Problem& bucket, const TimedSizes& sizes,
                                const Assignment& assignment);

}  // namespace kiln::answer
