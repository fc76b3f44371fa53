// Estimates a config's time before anything is compiled, from the op's cost, the passes' models, the launch geometry
// and the device's rates. Pure. Estimates rank candidates; their scale is approximate.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "manifest/variant.hpp"

namespace kiln::answer {

/// `blocks`, `waves` and `blocks_per_multiprocessor` are of the pass that takes longest.
struct Estimate {
  double ns = 0;  // of all passes; infinite when an expression overflows or a block cannot run on this device
  double waves = 0;
  std::int64_t blocks = 0;
  int blocks_per_multiprocessor = 0;  // resident, by shared memory, threads and registers
  double read_bytes = 0;   // read by the blocks of all passes from L2 and memory; 0 where a pass does not say
  std::string_view limit;  // "computation", "shared memory", "L2", "memory" or "latency"
};

/// A pass runs in waves of resident blocks. A wave takes the time of its scarcest rate, or the time of one block if
/// that is longer: to start, wait for its first bytes, stream the others and write. In the first wave all blocks wait
/// for their first bytes.
/// A first pass without a model has the op's cost, and a later one has no cost. Their reads are all in flight at once,
/// and their threads have 32 registers.
/// A library has the op's cost.
Estimate estimate(const manifest::Site& site, const manifest::Variant& variant, const Problem& at);

/// Returns for each parameter whether estimates may depend on it. Configs that differ only in the others have equal
/// estimates.
std::vector<bool> modelled_parameters(const manifest::Op& op, const manifest::Implementation& implementation);

}  // namespace kiln::answer
