// Prints the results of kiln replay, as tables or JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cli/replay_dry.hpp"
#include "cli/replay_launch.hpp"

namespace kiln::cli {

struct Counts {
  std::int64_t problems = 0, distinct = 0, buckets = 0;
  std::int64_t empty = 0;  // lines beside these, with a size of 0
};
Counts count(std::span<const TraceEntry> trace, std::int64_t empty);

void print_launches(const Globals& globals, const Counts& counts, const LaunchReport& report);
void print_verified(const Globals& globals, const VerifyReport& report);
/// `policy` is the word of --policy: whether a miss is served by a fallback.
void print_look_ups(const Globals& globals, const Target& target, const Counts& counts, const DryReport& report,
                    std::string_view policy);

}  // namespace kiln::cli
