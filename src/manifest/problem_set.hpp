// Problems by ranges of their sizes, and the buckets that they touch.
#pragma once

#include <cstdint>
#include <vector>

#include "manifest/problem.hpp"

namespace kiln::manifest {

struct SizeRange {
  std::int64_t low = 0, high = 0;  // both included
  bool operator==(const SizeRange&) const = default;
};

struct ProblemSet {
  std::vector<std::vector<SizeRange>> axes;  // one an axis of the op
  std::vector<std::vector<std::uint8_t>>
      selections;  // one a type or choice: indices of its values; none for its default
};

/// The distinct buckets, in rising order of the op's axes. Sizes lie within those of their axis. Throws Error(bad_input) when there are
/// more than `most`, and for a range without a multiple of what its axis is a multiple of.
std::vector<Problem> buckets_of(const Op& op, const ProblemSet& set, std::size_t most = 10000);

/// The smallest size of the axis at or above `value`, which is at most its maximum, a multiple itself.
std::int64_t next_legal(const Axis& axis, std::int64_t value);

}  // namespace kiln::manifest
