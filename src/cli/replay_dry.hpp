// Looks a trace up without launching it. Needs no device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "answer/miss.hpp"
#include "cli/next_step.hpp"
#include "cli/target.hpp"
#include "cli/trace_file.hpp"
#include "kiln/engine.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

/// The answer for launches of one bucket.
struct DryBucket {
  const manifest::Op* op = nullptr;
  Problem bucket;
  Origin origin = Origin::default_;
  bool served = false;  // some config is legal
  bool stale = false;
  bool cubin_in_files = false;       // for each problem's launch
  std::optional<answer::Miss> miss;  // why no record serves
  std::int64_t problems = 0;
  [[nodiscard]] bool is_hit() const noexcept { return kiln::is_hit(origin); }
  [[nodiscard]] bool is_ready() const noexcept { return is_hit() && cubin_in_files; }
};

struct DryReport {
  std::vector<DryBucket> buckets;
  MissingWork missing;
  std::vector<NextStep> next = {};        // what mends it: see next_steps
  std::int64_t constraint_fallbacks = 0;  // problems whose record has no config that is legal at the real sizes
};

/// A cubin of any NVRTC counts as found, because another machine may do the launches.
DryReport look_up_trace(std::span<const TraceEntry> trace, const Target& target, Regime regime, store::Layers& layers);

}  // namespace kiln::cli
