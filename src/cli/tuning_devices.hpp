// The GPUs that a command tunes on, each with an engine's state of its own; all fill one overlay.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/workload.hpp"
#include "engine/state.hpp"

namespace kiln::cli {

class TuningDevices {
 public:
  /// `devices`: "" for the one that --device names, "all", or ordinals such as "0,1,3". Throws Error(bad_input), and what opening
  /// a device throws.
  TuningDevices(const Globals& globals, const std::string& devices, const Options& options);

  /// The one that a command has opened already.
  explicit TuningDevices(engine::State& state);

  [[nodiscard]] std::size_t size() const noexcept { return states_.size(); }
  [[nodiscard]] engine::State& state(std::size_t device) const { return *states_[device]; }
  [[nodiscard]] engine::State& first() const { return *states_.front(); }
  [[nodiscard]] std::span<const int> ordinals() const noexcept { return ordinals_; }
  /// Device classes are numbered from 0 in the order of the devices.
  [[nodiscard]] std::size_t classes() const noexcept { return first_of_class_.size(); }
  [[nodiscard]] std::size_t class_of(std::size_t device) const { return class_of_[device]; }
  [[nodiscard]] engine::State& first_of_class(std::size_t number) const { return *states_[first_of_class_[number]]; }

 private:
  std::vector<int> ordinals_;
  std::vector<std::unique_ptr<engine::State>> opened_;
  std::vector<engine::State*> states_;
  std::vector<std::size_t> class_of_, first_of_class_;
};

void declare_devices(CLI::App& command, std::string& devices);

/// In the order that leaves the least idle time at the end: what takes longest to tune comes first.
std::vector<OpBucket> longest_first(std::span<const OpBucket> buckets, engine::State& state);

}  // namespace kiln::cli
