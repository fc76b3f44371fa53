// Launches a trace on the device, and verifies it there.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/tools.hpp"
#include "cli/trace_file.hpp"
#include "kiln/engine.hpp"

namespace kiln::cli {

struct LaunchReport {
  std::array<std::vector<double>, origin_count> host_ns;  // host time of each launch, by Origin
  std::int64_t stalls = 0;  // launches that were their bucket's first, or took the host more than a millisecond
  double stall_ns = 0;      // host time of those: tunes, compiles, first loads
  double device_ns = 0;     // of runs of other launches, from before the first to after the last launch of a run
  std::int64_t device_launches = 0;  // in those runs
  Stats stats;
};

/// Launches every problem once, in order, on one stream. Synchronises the stream around the first launch of each bucket
/// and after every batch of others, so that no launch waits for a place in the device's queue.
LaunchReport launch_trace(const Globals& globals, const Engine& engine, Tools& tools,
                          std::span<const TraceEntry> trace);

struct WrongResult {
  const TraceEntry* entry = nullptr;
  std::string reason;
};
struct VerifyReport {
  std::int64_t verified = 0;  // distinct problems
  std::vector<WrongResult> wrong;
};

/// Verifies each distinct problem once, on fresh random inputs, against the op's reference.
VerifyReport verify_trace(const Globals& globals, const Engine& engine, Tools& tools,
                          std::span<const TraceEntry> trace);

}  // namespace kiln::cli
