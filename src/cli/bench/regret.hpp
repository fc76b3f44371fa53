// Computes what sharing a record over a bucket costs, from times alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kiln/problem.hpp"

namespace kiln::cli::bench {

/// The result at one length under one policy.
struct Regret {
  std::string policy;
  Problem problem;
  std::int64_t length = 0, edge = 0;
  std::string shared, own;           // the config of the bucket's record, and the one tuned for this length alone
  double shared_ns = 0, own_ns = 0;  // equal when the configs are equal
  double regret = 0;  // 0.03: `shared` takes 3 % longer; negative when the tune for this length missed the best config
  bool fell_back = false;  // no config of the record is legal at this length, so the default serves
};

struct RegretSummary {
  std::int64_t lengths = 0;
  double median = 0, p95 = 0, worst = 0;
  std::int64_t worst_length = 0;
};
/// Percentiles by nearest rank; all 0 without regrets.
RegretSummary summarise(std::span<const Regret> regrets);

/// Returns the first length of the size class: 1, 4, 16, 64, ...
std::int64_t class_of(std::int64_t length);

}  // namespace kiln::cli::bench
