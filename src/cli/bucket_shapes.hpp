// Buckets that are listed together: those of one op, with one text about each, that differ in the sizes of axes whose
// buckets join sizes alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "manifest/op_bucket.hpp"

namespace kiln::cli {

struct ToldBucket {
  manifest::OpBucket of;
  std::string text;  // what a list says of it, such as "no record"
};

struct BucketShape {
  manifest::OpBucket of;
  Problem low, high;  // the least and the largest size of each axis
  std::vector<std::size_t> members;
  std::string text;

  /// "rows=1..8192 cols=4096 dtype=bf16, 14 buckets"
  [[nodiscard]] std::string buckets() const;
};

/// Returns the shapes in the order of their first buckets. Sizes vary on the axes whose policy is not exact for the
/// bucket's types and choices (manifest::open_axes). `members` are indices of `buckets`.
std::vector<BucketShape> shapes_of(std::span<const ToldBucket> buckets);

}  // namespace kiln::cli
