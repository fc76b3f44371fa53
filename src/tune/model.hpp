// How long a config should take, before anything is compiled: from the op's cost expressions, what its implementation says it
// really moves and computes, launch geometry and the architecture's rates. Pure; ranks candidates, and is about right in scale.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kiln/options.hpp"
#include "manifest/problem.hpp"

namespace kiln::tune {

/// `blocks`, `waves` and `blocks_per_multiprocessor` are of the pass that takes longest.
struct Estimate {
  double ns = 0;  // of all passes; infinite when an expression cannot be evaluated or a block cannot run on this device
  double waves = 0;
  std::int64_t blocks = 0;
  int blocks_per_multiprocessor = 0;  // resident at once, by shared memory, threads and registers
  double read_bytes = 0;   // of all passes, what their blocks read of L2 and memory; 0 where one does not say
  std::string_view limit;  // "computation", "shared memory", "L2", "memory" or "latency"
};

/// A pass runs in waves of the blocks that are resident at once. A wave takes as long as its scarcest rate, or as one block takes
/// by itself: to start, to wait for its first bytes, to stream the others with so many in flight, to write. In the first wave all
/// wait for the first bytes.
/// Where a pass has no model: the first one has the op's cost, others none; reads are all in flight at once; a thread has 32 registers.
/// A library has the op's cost.
Estimate estimate(const manifest::Op& op, const manifest::Implementation& implementation, const Problem& bucket,
                  const manifest::DeviceFacts& device, std::span<const std::int64_t> config,
                  Regime regime = Regime::cold_l2);

/// Of each parameter, whether estimates may depend on it: configs that differ in the others alone are not told apart.
std::vector<bool> modelled_parameters(const manifest::Op& op, const manifest::Implementation& implementation);

}  // namespace kiln::tune
