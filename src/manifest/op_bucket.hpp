// A bucket of an op, for which no device is chosen yet: what workloads, demands and deployments name.
#pragma once

#include <span>
#include <vector>

#include "manifest/op.hpp"
#include "manifest/site.hpp"

namespace kiln::manifest {

struct OpBucket {
  const Op* op = nullptr;
  Problem bucket;  // upper edges
  bool operator==(const OpBucket&) const = default;
  [[nodiscard]] bool is_of_team() const noexcept { return op->is_of_team(); }
  [[nodiscard]] Bucket on(const DeviceFacts& device, Regime regime = Regime::cold_l2) const noexcept {
    return {{*op, device, regime}, bucket};
  }
};

inline std::vector<Bucket> buckets_on(std::span<const OpBucket> buckets, const DeviceFacts& device,
                                      Regime regime = Regime::cold_l2) {
  std::vector<Bucket> placed;
  for (const OpBucket& each : buckets) placed.push_back(each.on(device, regime));
  return placed;
}

}  // namespace kiln::manifest
