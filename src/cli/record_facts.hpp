// What several commands say of a record.
#pragma once

#include <cstddef>
#include <string>

#include "manifest/problem.hpp"
#include "store/record.hpp"

namespace kiln::cli {

std::string config_of(const store::Choice& choice);  // "block_row threads=256"

/// Of Role::without_library, what serves the upper edge; null where no choice is a library's.
const store::Choice* edge_without_library(const store::Record& record);

/// The distinct configs of Role::fastest.
std::size_t configs_of(const store::Record& record);

/// Whether a candidate was timed at the upper edge of the record's bucket.
bool is_at_edge(const store::Record& record, const store::Candidate& candidate);

/// Rates from an op's cost model: what it must move and compute, over the time it took.
struct Rates {
  double bytes_per_second = 0, flops_per_second = 0;  // 0 where the op declares no cost
};
Rates rates_of(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, double ns);

}  // namespace kiln::cli
