// Buckets that are listed together: those of one op, with one text about each, that differ in the size of one axis
// alone.
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
  std::size_t axis = 0;            // the one that varies
  std::int64_t low = 0, high = 0;  // its sizes
  std::vector<std::size_t> members;
  std::string text;

  /// "rows=1..8192 cols=4096 dtype=bf16, 14 buckets"
  [[nodiscard]] std::string buckets() const;
};

/// Returns the shapes in the order of their first buckets. `members` are indices of `buckets`.
std::vector<BucketShape> shapes_of(std::span<const ToldBucket> buckets);

}  // namespace kiln::cli
