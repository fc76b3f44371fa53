// Finds launches that leave most multiprocessors idle, such as those whose split count was clamped to 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/contest.hpp"

namespace kiln::cli::bench {

/// Returns the blocks of the config's largest pass at these sizes, or 0 when they cannot be computed. The largest is
/// the one that reads most by its model: a pass that adds up a few parts may have many blocks.
std::int64_t blocks_of(const manifest::Site& site, const manifest::Variant& contender, const Problem& problem);

struct Idle {
  std::int64_t blocks = 0;
  std::vector<manifest::Variant>
      wider;  // legal configs with at least twice as many blocks, the likeliest to help first
};

/// Returns a result when the launch has fewer blocks than half of the multiprocessors, the search space has a legal
/// config with at least twice as many, and the op has enough work for them. Timing must decide whether one of these is
/// faster.
std::optional<Idle> idle_launch(const manifest::Site& site, const manifest::Variant& contender, const Problem& problem);

/// "16 blocks on 132 multiprocessors, so 116 have none; mma splits=128 has 128"
std::string text_of_idle(std::int64_t blocks, std::string_view wider, std::int64_t wider_blocks,
                         const manifest::DeviceFacts& device);

}  // namespace kiln::cli::bench
