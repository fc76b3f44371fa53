// The commands: each adds itself to the parser, and leaves what it would do in `Chosen` when it is named.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/exit_code.hpp"
#include "cli/session.hpp"

namespace kiln::cli {

struct Chosen {
  Globals globals;
  std::function<int(const Globals&)> run;  // gives the exit status
};

void add_devices(CLI::App& app, Chosen& chosen);
void add_ops(CLI::App& app, Chosen& chosen);
void add_tune(CLI::App& app, Chosen& chosen);
void add_prewarm(CLI::App& app, Chosen& chosen);
void add_run(CLI::App& app, Chosen& chosen);
void add_replay(CLI::App& app, Chosen& chosen);
void add_trace(CLI::App& app, Chosen& chosen);
void add_coverage(CLI::App& app, Chosen& chosen);
void add_explain(CLI::App& app, Chosen& chosen);
void add_cache(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_bench(CLI::App& app, Chosen& chosen);
void add_doctor(CLI::App& app, Chosen& chosen);

/// Adds a command whose settings are a value of `Settings`: `declare(command, settings)` names its options, `run` does it.
template <class Settings>
CLI::App* add_command(CLI::App& app, Chosen& chosen, const std::string& name, const std::string& summary,
                      void (*declare)(CLI::App&, Settings&), int (*run)(const Globals&, const Settings&)) {
  CLI::App* command = app.add_subcommand(name, summary);
  auto settings = std::make_shared<Settings>();
  if (declare != nullptr) declare(*command, *settings);
  command->callback([settings, run, &chosen] {
    chosen.run = [settings, run](const Globals& globals) { return run(globals, *settings); };
  });
  return command;
}

/// For what a command writes: refuses an empty name, a folder that is not there, and one in which no file can be made, before the work begins.
CLI::Validator output_name();
/// Both ends included; unlike CLI::Range it refuses what is not a number.
CLI::Validator number_from(double low, double high);

}  // namespace kiln::cli
