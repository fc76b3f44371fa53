// Facts of records that several commands print.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "manifest/problem.hpp"
#include "store/record.hpp"

namespace kiln::cli {

/// True when `a` sorts before `b`. Numbers compare by value: rows=2 before rows=16.
bool reads_before(std::string_view a, std::string_view b);

std::string config_of(const store::Choice& choice);  // "block_row threads=256"

/// Returns the choice of Role::without_library at the upper edge, or null when the record uses no library.
const store::Choice* edge_without_library(const store::Record& record);

/// Returns the number of intervals of sizes that the record divides its bucket into, each with the fastest config
/// there.
std::size_t intervals_of(const store::Record& record);
/// Returns the distinct configs of Role::fastest. Several intervals may have one config.
std::set<std::string> configs_of(const store::Record& record);

/// True when the candidate was timed at the upper edge of the record's bucket.
bool is_at_edge(const store::Record& record, const store::TriedCandidate& candidate);

/// Rates: the bytes and flops of the op's [cost], divided by the time.
struct Rates {
  double bytes_per_second = 0, flops_per_second = 0;  // 0 when the op declares no cost
};
Rates rates_of(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, double ns);

}  // namespace kiln::cli
