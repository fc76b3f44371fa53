#include "manifest/bucket_policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kiln::manifest {
namespace {

// The power of two at or above value, or `most` when that is smaller.
std::int64_t pow2_up(std::int64_t value, std::int64_t most) noexcept {
  if (value > std::int64_t{1} << 62) return most;
  return std::min(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value))), most);
}

// The power of two below high; 0 below 1.
std::int64_t pow2_below(std::int64_t high) noexcept {
  return high <= 1 ? 0 : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(high - 1)));
}

std::int64_t multiple_up(std::int64_t value, std::int64_t step, std::int64_t most) noexcept {
  const std::int64_t below = (value - 1) / step * step;
  return below > most - step ? most : below + step;
}

// The sizes (after, step->until], whose buckets are multiples of one step. `step` is null where buckets are powers of
// two.
struct Stretch {
  std::int64_t after;
  const BucketPolicy::Step* step;
};

Stretch stretch_of(const BucketPolicy& policy, std::int64_t value) noexcept {
  if (value <= policy.pow2_until) return {0, nullptr};
  std::int64_t after = policy.pow2_until;
  for (const BucketPolicy::Step& step : policy.steps) {
    if (value <= step.until) return {after, &step};
    after = step.until;
  }
  return {after, nullptr};
}

std::int64_t stepped_high(const BucketPolicy& policy, std::int64_t value, std::int64_t maximum) noexcept {
  if (value <= policy.pow2_until) return pow2_up(value, std::min(policy.pow2_until, maximum));
  const auto [after, step] = stretch_of(policy, value);
  return step == nullptr ? pow2_up(value, maximum) : multiple_up(value, step->step, std::min(step->until, maximum));
}

// The upper edge of the bucket below the one named `high`.
std::int64_t edge_below(const BucketPolicy& policy, std::int64_t high) noexcept {
  switch (policy.kind) {
    case PolicyKind::exact: return high - 1;
    case PolicyKind::pow2: return pow2_below(high);
    case PolicyKind::pow2_steps: {
      const auto [after, step] = stretch_of(policy, high);
      return std::max(after, step == nullptr ? pow2_below(high) : (high - 1) / step->step * step->step);
    }
    case PolicyKind::edges: {
      const auto edge = std::ranges::lower_bound(policy.edges, high);
      return edge == policy.edges.begin() ? 0 : *std::prev(edge);
    }
  }
  return high - 1;
}

}  // namespace

std::int64_t BucketPolicy::high(std::int64_t value, std::int64_t maximum) const noexcept {
  value = std::max<std::int64_t>(value, 1);
  if (value >= maximum) return maximum;
  switch (kind) {
    case PolicyKind::exact: return value;
    case PolicyKind::pow2: return pow2_up(value, maximum);
    case PolicyKind::pow2_steps: return stepped_high(*this, value, maximum);
    case PolicyKind::edges: {
      const auto edge = std::ranges::lower_bound(edges, value);
      return edge == edges.end() ? maximum : std::min(*edge, maximum);
    }
  }
  return value;
}

std::int64_t BucketPolicy::low(std::int64_t high, std::int64_t minimum, std::int64_t maximum) const noexcept {
  high = std::min(high, maximum);
  return std::min(high, std::max(minimum, edge_below(*this, high) + 1));
}

std::string BucketPolicy::text() const {
  switch (kind) {
    case PolicyKind::exact: return "exact";
    case PolicyKind::pow2: return "pow2";
    case PolicyKind::pow2_steps: {
      std::string result = fmt::format("pow2_steps({}", pow2_until);
      for (const Step& step : steps) result += fmt::format(";{}/{}", step.until, step.step);
      return result + ")";
    }
    case PolicyKind::edges: return fmt::format("edges({})", fmt::join(edges, ";"));
  }
  return "exact";
}

}  // namespace kiln::manifest
