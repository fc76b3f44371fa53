// Launches that leave most multiprocessors idle: what a split count that was clamped to 1 does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/bench/contest.hpp"

namespace kiln::cli::bench {

/// Blocks of the config's largest launch at these sizes; 0 when they cannot be computed.
std::int64_t blocks_of(const manifest::Op& op, const Contender& contender, const Problem& problem,
                       const manifest::DeviceFacts& device);

struct Idle {
  std::int64_t blocks = 0;
  std::vector<Contender> wider;  // legal configs of at least twice as many blocks, likeliest to help first
};

/// When the launch has fewer blocks than half of the multiprocessors, though the search space has a legal config with at least
/// twice as many and the op has work for them. Whether one of them is faster is for a clock to say.
std::optional<Idle> idle_launch(const manifest::Op& op, const Contender& contender, const Problem& problem,
                                const manifest::DeviceFacts& device);

}  // namespace kiln::cli::bench
