// Corrects the model's estimates by measurements near a bucket. Pure.
#pragma once

#include <span>
#include <vector>

#include "answer/neighbours.hpp"
#include "kiln/options.hpp"
#include "manifest/problem.hpp"
#include "store/record.hpp"

namespace kiln::answer {

class Prior {
 public:
  /// `neighbours`: nearest first, as neighbours() returns them. Records of another op, revision, regime or selection are ignored. `op` must
  /// outlive this object.
  Prior(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device, Regime regime,
        std::span<const store::Record> neighbours);

  /// Returns the factor on the model's estimate of a config: the mean ratio of measurement to estimate of equal and similar configs in near
  /// buckets. 1 without measurements.
  [[nodiscard]] double correction(const manifest::Implementation& implementation,
                                  std::span<const std::int64_t> config) const;

  /// Returns the first `at_most` distinct configs of the neighbours that are legal in this bucket: neighbour by neighbour, each from its upper
  /// edge down.
  [[nodiscard]] std::vector<Winner> transferred(std::size_t at_most) const;

 private:
  /// A measured config of a neighbour. `excess`: the logarithm of measured over estimated, less the median of its bucket.
  struct Point {
    const manifest::Implementation* implementation;
    manifest::Config config;
    double excess = 0, weight = 0;
  };
  void learn(const store::Record& record);

  const manifest::Op& op_;
  Problem bucket_;
  manifest::DeviceFacts device_;
  Regime regime_;
  std::vector<Winner> winners_;
  std::vector<Point> points_;
  double offset_sum_ = 0, offset_weight_ = 0;  // of the buckets' medians
};

}  // namespace kiln::answer
