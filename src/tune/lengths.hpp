// The lengths of a bucket at which its candidates are timed, and the sizes that each stands for. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "manifest/region.hpp"
#include "tune/portfolio.hpp"

namespace kiln::tune {

/// Sizes of each open axis, and all their combinations. Each combination stands for the sizes up to it, from the next smaller one on:
/// there are as many blocks at all of them, or few fewer, so that a config is chosen where its stairs end.
struct Lengths {
  std::vector<std::size_t> axes;                // the open ones
  std::vector<std::vector<std::int64_t>> ends;  // of each, ascending; the last is the bucket's upper edge
  std::vector<Problem> problems;                // the last axis varies fastest; the last is the bucket
};

/// Ends that part a bucket evenly: sixteen of one open axis at most, at multiples of eight of it where it has as many; four of each of two axes, two of each of
/// more. Fewer where `at_most` says so. One length where no axis is open.
Lengths even_lengths(const manifest::Op& op, const Problem& bucket, std::size_t at_most);
/// The same with more ends of its only open axis.
Lengths with_ends(const manifest::Op& op, const Problem& bucket, const Lengths& lengths,
                  std::span<const std::int64_t> ends);

/// Where ends are missing on one axis, by the model: `ns[c][i]` is what config c is expected to take at `sizes[i]`, which ascend and hold all `ends`. Repeats, up to `at_most`
/// times: where what is fastest at the next end is furthest behind the fastest, by 1.5 % at least, the fastest one's stair ends at a size that is added.
std::vector<std::int64_t> stairs(std::span<const std::int64_t> sizes, std::span<const std::vector<double>> ns,
                                 std::vector<std::int64_t> ends, std::size_t at_most);

/// Sizes that one candidate serves; its time is that of the length at their upper ends.
struct Interval {
  manifest::Region region;
  std::size_t candidate = 0;
  std::size_t length = 0;
};
/// Neighbouring lengths of one candidate joined, in the order of their sizes. A length that nothing serves goes to what serves the next
/// larger one. Empty where nothing serves any.
std::vector<Interval> intervals(const manifest::Op& op, const Problem& bucket, const Lengths& lengths,
                                const Assignment& assignment);

}  // namespace kiln::tune
