// Which sizes share a record. A bucket of one axis is the interval (low, high]; `high` names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::manifest {

enum class PolicyKind : std::uint8_t { exact, pow2, pow2_steps, edges };

/// pow2        high = the power of two at or above the value
/// pow2_steps  pow2 up to pow2_until, then multiples of steps[i].step up to steps[i].until, then pow2 again
/// edges       high = the smallest edge at or above the value; past the last edge: the axis maximum
/// exact       every value is a bucket of its own
struct BucketPolicy {
  struct Step {
    std::int64_t until;
    std::int64_t step;
    bool operator==(const Step&) const = default;
  };
  PolicyKind kind = PolicyKind::exact;
  std::int64_t pow2_until = 0;
  std::vector<Step> steps;
  std::vector<std::int64_t> edges;
  bool operator==(const BucketPolicy&) const = default;

  /// The bucket's upper edge for 1 <= value <= maximum; never past maximum. No allocation, no exception.
  [[nodiscard]] std::int64_t high(std::int64_t value, std::int64_t maximum) const noexcept;
  /// The smallest value of the bucket whose upper edge is `high`, never under minimum.
  [[nodiscard]] std::int64_t low(std::int64_t high, std::int64_t minimum, std::int64_t maximum) const noexcept;
  /// The policy's text in a record key: "pow2", "exact", "pow2_steps(256;2048/256;4096/512)", "edges(16;64;256)".
  [[nodiscard]] std::string text() const;
};

}  // namespace kiln::manifest
