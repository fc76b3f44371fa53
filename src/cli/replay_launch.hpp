// A trace launched on the device, and verified on it.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/trace_file.hpp"
#include "engine/state.hpp"
#include "kiln/engine.hpp"

namespace kiln::cli {

struct LaunchReport {
  std::array<std::vector<double>, origin_count> host_ns;  // one a launch, by Origin; the device's work is not in it
  double device_ns = 0;                                   // from before each batch's first launch to after its last
  Stats stats;
};

/// Launches every problem once, in order, on one stream. The stream is synchronised before the clock starts and after every batch of
/// launches, so that no launch waits for room in the device's queue.
LaunchReport launch_trace(const Globals& globals, const Engine& engine, engine::State& tools,
                          std::span<const TraceEntry> trace);

struct WrongResult {
  const TraceEntry* entry = nullptr;
  std::string reason;
};
struct VerifyReport {
  std::int64_t verified = 0;  // distinct problems
  std::vector<WrongResult> wrong;
};

/// Each distinct problem once, on fresh random inputs, against the op's reference.
VerifyReport verify_trace(const Globals& globals, const Engine& engine, engine::State& tools,
                          std::span<const TraceEntry> trace);

}  // namespace kiln::cli
