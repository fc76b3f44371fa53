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
  std::int64_t stalls = 0;  // launches that were their bucket's first, or kept the host longer than a millisecond
  double stall_ns = 0;      // of the host, in those: tunes, compiles, first loads
  double device_ns = 0;     // of runs of other launches, each from before its first launch to after its last
  std::int64_t device_launches = 0;  // in those runs
  Stats stats;
};

/// Launches every problem once, in order, on one stream. The stream is synchronised before and after each launch that is the first of its
/// bucket, and after every batch of others, so that no launch waits for a place in the device's queue.
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
