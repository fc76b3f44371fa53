// The commands. Each adds itself to the parser; when it is named, it stores its action in `Chosen`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>

#include "cli/exit_code.hpp"
#include "cli/session.hpp"

namespace kiln::cli {

/// The global options that a command takes beside --json and --quiet, which every command takes. Its help names them,
/// and others are refused.
enum Takes : unsigned {
  takes_none = 0,
  takes_device = 1,
  takes_overlay = 2,
  takes_bases = 4,
  takes_trust = 8,  // the policy, for machine code of files
  takes_keys = 16,
  takes_templates = 32,
  takes_remote = 64,
  takes_layers = takes_overlay | takes_bases | takes_trust | takes_keys,
  takes_all = takes_device | takes_layers | takes_templates,
};

struct Chosen {
  Globals globals;
  std::vector<std::pair<CLI::App*, unsigned>> takes;  // of each command
  std::function<int(const Globals&)> run;             // returns the exit status
};

void add_devices(CLI::App& app, Chosen& chosen);
void add_ops(CLI::App& app, Chosen& chosen);
void add_tune(CLI::App& app, Chosen& chosen);
void add_prewarm(CLI::App& app, Chosen& chosen);
void add_run(CLI::App& app, Chosen& chosen);
void add_replay(CLI::App& app, Chosen& chosen);
void add_trace(CLI::App& app, Chosen& chosen);
void add_workload(CLI::App& app, Chosen& chosen);
void add_coverage(CLI::App& app, Chosen& chosen);
void add_explain(CLI::App& app, Chosen& chosen);
void add_cache(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_bench_regret(CLI::App& bench, Chosen& chosen);
void add_check(CLI::App& app, Chosen& chosen);
void add_new(CLI::App& app, Chosen& chosen);
void add_doctor(CLI::App& app, Chosen& chosen);

/// Adds a command: `declare(command, settings)` adds its options, `run` executes it. `takes` is a sum of Takes.
template <class Settings>
CLI::App* add_command(CLI::App& app, Chosen& chosen, const std::string& name, const std::string& summary,
                      void (*declare)(CLI::App&, Settings&), int (*run)(const Globals&, const Settings&),
                      unsigned takes) {
  CLI::App* command = app.add_subcommand(name, summary);
  chosen.takes.emplace_back(command, takes);
  auto settings = std::make_shared<Settings>();
  if (declare != nullptr) declare(*command, *settings);
  command->callback([settings, run, &chosen] {
    chosen.run = [settings, run](const Globals& globals) { return run(globals, *settings); };
  });
  return command;
}

/// Adds --device-class CLASS, which takes names too, such as H200 and A100.
void add_device_class(CLI::App& command, std::string& device_class, const std::string& summary);
/// Checks the name of an output before the work begins: refuses an empty name, and a folder that does not exist or is
/// not writable.
CLI::Validator output_name();
/// Transforms of an option of a number from `low` to `high`, both included, in decimal and without a plus sign. Each
/// such option has one, except a median, which has the range that it is of. CLI11 alone takes -1 and too large a number
/// for a type without a sign, NaN for a real, and a leading 0 for octal.
CLI::Validator number_from(double low, double high);
CLI::Validator whole_number_from(std::uint64_t low, std::uint64_t high);
constexpr std::uint64_t most_counted = 1'000'000'000;  // of an option that says how many
/// Of 64 bits without a sign, such as a seed.
inline CLI::Validator any_whole_number() { return whole_number_from(0, std::numeric_limits<std::uint64_t>::max()); }

}  // namespace kiln::cli
