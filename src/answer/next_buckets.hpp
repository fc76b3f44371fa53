// Which buckets launches are likely to need after one whose machine code was missing. Needs no device and no file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "manifest/problem.hpp"

namespace kiln::answer {

/// Launches of a bucket, as files count them.
struct BucketCount {
  Problem bucket;
  std::int64_t launches = 0;
};

struct NextBucket {
  Problem bucket;
  int rank = 0;  // the least is the likeliest
};

/// Returns the buckets that may follow `missed`, each once and without it, the likeliest first. The shape of a bucket
/// is its types, choices and exact sizes; its lengths are the other sizes. Of a model that launches several shapes of
/// one op:
/// - rank 0: other shapes at the lengths of `missed`, from `met` (the latest at the back), then from `counted`;
/// - rank 1 and on: the shape of `missed` at the lengths of other buckets that were met or counted;
/// - rank 1 to 3: the shape of `missed`, so many buckets up and down. Lengths that are equal in `missed`, such as
///   queries and keys, rise and fall together.
std::vector<NextBucket> next_buckets(const manifest::Op& op, const Problem& missed, std::span<const Problem> met,
                                     std::span<const BucketCount> counted);

}  // namespace kiln::answer
