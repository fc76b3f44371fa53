// What the commands that tune share: the GPUs that they name, what is shown meanwhile, and the closing table.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "engine/tuner.hpp"

namespace kiln::cli {

void declare_devices(CLI::App& command, std::string& devices);
/// `devices`: "" for the one that --device names, "all", or ordinals such as "0,1,3". Throws Error(bad_input), and what Tuner's
/// constructor throws. It is stopped by Ctrl-C.
Tuner make_tuner(const Globals& globals, const std::string& devices, Options options);

/// engine::tune_all, with its progress.
TuneReport tune_buckets(const Globals& globals, const Tuner& tuner, std::span<const engine::OpBucket> buckets,
                        TuneChoice choice);

/// Of a report that was interrupted: how far it came.
std::string interruption_of(const TuneReport& report);

/// The closing table: bucket, the config that serves its upper edge, how many there are, cost, baseline, gain, bandwidth and
/// throughput. As JSON, an object a bucket.
void print_tuned(const Globals& globals, const Tuner& tuner, const TuneReport& report);

}  // namespace kiln::cli
