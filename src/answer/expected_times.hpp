// Expected device times of launches that were not timed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "answer/near_index.hpp"
#include "answer/resolver.hpp"

namespace kiln::answer {

/// expected_ns() of many problems, which reads the records of each op once.
class ExpectedTimes {
 public:
  ExpectedTimes(const manifest::DeviceFacts& device, Regime regime, store::Layers& layers)
      : device_(device), regime_(regime), layers_(layers) {}
  double of(const manifest::Op& op, const Problem& problem);
  /// Returns how many records were compared with problems so far.
  [[nodiscard]] std::int64_t compared() const;

 private:
  const manifest::DeviceFacts& device_;
  Regime regime_;
  store::Layers& layers_;
  std::map<const manifest::Op*, NearIndex> indexes_;
};

/// Nanoseconds of device time at these real sizes, never 0. Takes the time of the bucket's record, else the model's
/// estimate of the best known config, corrected by near records. Scales it from the bucket's upper edge to the sizes by
/// the op's cost expressions.
double expected_ns(const manifest::Site& site, const Problem& problem, store::Layers& layers);

/// The time of `problem` over that of `other`, by the op's cost expressions. Both are of one bucket.
double relative_cost(const manifest::Site& site, const Problem& problem, const Problem& other);

/// An expected time over that of a tuned config.
struct Slowdown {
  double times = 0;     // 0: unknown
  std::string grounds;  // what it rests on, or why it is unknown; empty for a hit
};
/// 1 for a hit. For a fallback the median slowdown of such fallbacks in near records, else what a benchmark or the
/// model's estimates say.
Slowdown expected_slowdown(const manifest::Bucket& bucket, const Answer& answer, store::Layers& layers);

}  // namespace kiln::answer
