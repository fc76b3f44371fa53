// What sharing a record over a bucket costs, from times alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kiln/problem.hpp"

namespace kiln::cli::bench {

/// One real length under one policy.
struct Regret {
  std::string policy;
  Problem problem;
  std::int64_t length = 0, edge = 0;
  std::string shared, own;  // configs: that a launch takes from the bucket's record, and tuned for this very length
  double shared_ns = 0, own_ns = 0;  // equal where the configs are
  double regret = 0;       // 0.03: the bucket's takes 3 % longer. Under 0 where a tune had found less than the best.
  bool fell_back = false;  // no config of the record is legal at this length, and the default serves
};

struct RegretSummary {
  std::int64_t lengths = 0;
  double median = 0, p95 = 0, worst = 0;
  std::int64_t worst_length = 0;
};
/// Percentiles are of the nearest rank. All 0 for none.
RegretSummary summarise(std::span<const Regret> regrets);

/// The first length of the size class: 1, 4, 16, 64, ...
std::int64_t class_of(std::int64_t length);

}  // namespace kiln::cli::bench
