// Corrects the model's estimates by measurements near a bucket. Pure.
#pragma once

#include <span>
#include <vector>

#include "answer/neighbours.hpp"
#include "manifest/problem.hpp"
#include "store/record.hpp"

namespace kiln::answer {

class Prior {
 public:
  /// `neighbours`: nearest first, as neighbours() returns them. Records of another op, revision, regime or selection
  /// are ignored.
  Prior(const manifest::Bucket& bucket, std::span<const store::Record> neighbours);

  /// Returns the factor on the model's estimate of a config: the mean ratio of measurement to estimate of equal and
  /// similar configs in near buckets. 1 without measurements.
  [[nodiscard]] double correction(const manifest::Variant& variant) const;

  /// Returns the first `at_most` distinct configs of the neighbours that are legal in this bucket: neighbour by
  /// neighbour, each from its upper edge down.
  [[nodiscard]] std::vector<manifest::Variant> transferred(std::size_t at_most) const;

 private:
  /// A measured config of a neighbour. `excess`: the logarithm of measured over estimated, less the median of its
  /// bucket.
  struct Point : manifest::Variant {
    double excess = 0, weight = 0;
  };
  void learn(const store::Record& record);

  manifest::Bucket bucket_;
  std::vector<manifest::Variant> winners_;
  std::vector<Point> points_;
  double offset_sum_ = 0, offset_weight_ = 0;  // of the buckets' medians
};

}  // namespace kiln::answer
