// A set of problems, by ranges of their sizes, and the buckets that it touches.
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
  std::vector<std::vector<SizeRange>> axes;  // for each axis of the op
  std::vector<std::vector<std::uint8_t>>
      selections;  // for each type or choice: indices of values; empty for the default
};

/// Returns the distinct buckets, in rising order of the op's axes, without those whose types and choices the op does
/// not allow. Sizes must lie within their axis's minimum and maximum. Throws Error(bad_input) where no type and choice
/// named is allowed, for more than `most` buckets, and for a range that holds no multiple of the axis's multiple_of.
std::vector<Problem> buckets_of(const Op& op, const ProblemSet& set, std::size_t most = 10000);

/// Returns the smallest legal size of the axis at or above `value`, which is at most the axis's maximum. The maximum is
/// legal.
std::int64_t next_legal(const Axis& axis, std::int64_t value);

}  // namespace kiln::manifest
