// Shared by the commands that tune: their options, the progress, and the table of results.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cuda/device.hpp"
#include "kiln/tuner.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/op_bucket.hpp"

namespace kiln::cli {

/// Options for how long and how thoroughly a command searches.
struct SearchChoice {
  std::string strategy = "racing";
  std::int64_t trials = 0;
  double seconds = 0;
  std::uint64_t seed = 1;
  std::string samples;
  std::vector<const CLI::Option*> options{};  // of the command line, by declare_search
};

void declare_search(CLI::App& command, SearchChoice& choice);
/// Returns the names of the options that were given.
std::vector<std::string> given(const SearchChoice& choice);
/// Throws Error(bad_input) as check_samples does.
SearchSettings search_settings(const SearchChoice& choice);

void declare_devices(CLI::App& command, std::string& devices);
/// A Tuner, its GPUs, and its files as they were when it was made.
struct TunerOn {
  Tuner tuner;
  std::vector<cuda::DeviceInfo> devices;
  store::Layers layers;
};
/// `devices`: "" for Options::device, "all", or ordinals such as "0,1,3". Ctrl-C stops the tuner. Calls `check` with
/// it. With a team, it is collective: what fails on one rank is thrown on all. Throws Error(bad_input), and as Tuner's
/// constructor and `check` do.
TunerOn make_tuner(const Globals& globals, const std::string& devices, Options options,
                   const std::function<void(const TunerOn&)>& check = {});

std::vector<kiln::Demand> demands_of(std::span<const manifest::OpBucket> buckets);

/// Calls Tuner::tune, shows its progress, and notes the warnings that it gave.
TuneReport tune_with_progress(const Globals& globals, const TunerOn& on, const manifest::Catalogue& ops,
                              std::span<const manifest::OpBucket> buckets, TuneChoice choice);

/// Returns a message that says how far an interrupted tune came.
std::string interruption_of(const TuneReport& report);

/// Prints a table: bucket, config at its upper edge, number of configs, cost, baseline, gain, bandwidth and throughput.
/// As JSON, prints an object for each bucket.
void print_tuned(const Globals& globals, const manifest::Catalogue& ops, const TuneReport& report);

}  // namespace kiln::cli
