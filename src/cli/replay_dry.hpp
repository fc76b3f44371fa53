// A trace looked up but not launched: needs no device.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/target.hpp"
#include "cli/trace_file.hpp"
#include "engine/counters.hpp"
#include "kiln/engine.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

/// What a launch of one bucket would come from.
struct DryBucket {
  const manifest::Op* op = nullptr;
  Problem bucket;
  Origin origin = Origin::default_;
  bool served = false;  // something is legal there
  bool stale = false;
  bool cubin_in_files = false;       // of what each problem would launch
  std::optional<engine::Miss> miss;  // why no record serves
  std::int64_t problems = 0;
  [[nodiscard]] bool is_hit() const noexcept { return kiln::is_hit(origin); }
  [[nodiscard]] bool is_ready() const noexcept { return is_hit() && cubin_in_files; }
};

struct DryReport {
  std::vector<DryBucket> buckets;
  std::int64_t constraint_fallbacks = 0;  // problems at whose real size no config of their bucket's record is legal
};

/// A cubin counts as found whichever NVRTC it was compiled by: this machine need not be the one that will launch.
DryReport look_up_trace(std::span<const TraceEntry> trace, const Target& target, Regime regime, store::Layers& layers);

}  // namespace kiln::cli
