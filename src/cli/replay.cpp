// kiln replay: launches a recorded stream of problems.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/interrupt.hpp"
#include "cli/kept.hpp"
#include "cli/output.hpp"
#include "cli/replay_dry.hpp"
#include "cli/replay_launch.hpp"
#include "cli/replay_report.hpp"
#include "cli/target.hpp"
#include "cli/tune_progress.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

struct ReplaySettings {
  std::string trace;
  bool verify = false;
  bool dry_run = false;
  std::string policy = "tune";
  TargetChoice target;
};

void declare(CLI::App& command, ReplaySettings& settings) {
  command
      .add_option("trace", settings.trace,
                  "A file of problems, one a line (rms_norm rows=137 cols=4096 dtype=bf16); - reads the standard input")
      ->required()
      ->type_name("TRACE");
  command.add_flag("--verify", settings.verify, "Afterwards verify each distinct problem against the op's reference");
  command.add_flag("--dry-run", settings.dry_run, "Look up and launch nothing; needs no GPU");
  command
      .add_option(
          "--policy", settings.policy,
          "What a miss does: tune, background (a fallback, while a worker tunes), nearest (a fallback) or error")
      ->check(CLI::Validator(CLI::IsMember({"tune", "background", "nearest", "error"})).description(""))
      ->type_name("POLICY");
  command.add_option("--arch", settings.target.arch, "With --dry-run: for this architecture")->type_name("ARCH");
  add_device_class(command, settings.target.device_class, "With --dry-run: for this device class");
}

void refuse_teams(std::span<const TraceEntry> trace) {
  for (const TraceEntry& each : trace)
    if (each.op->is_of_team())
      throw Error(
          ErrorKind::bad_input,
          fmt::format("line {} of the trace is of {}, an op of a team, which kiln replay does not launch; leave it "
                      "out, or look it up with --dry-run",
                      each.line, each.op->name));
}

/// Removes the lines with a size of 0, which launch nothing. Returns their number.
std::int64_t leave_out_empty(std::vector<TraceEntry>& trace) {
  return static_cast<std::int64_t>(
      std::erase_if(trace, [](const TraceEntry& each) { return manifest::is_empty(*each.op, each.problem); }));
}

int launch(const Globals& globals, const ReplaySettings& settings, const manifest::Catalogue& ops,
           std::span<const TraceEntry> trace, std::int64_t empty) {
  refuse_teams(trace);
  Options options = engine_options(globals);
  Tools tools(silenced(globals));  // the engine warns of its files
  const Counts counts = count(trace, empty);
  TuneProgress progress(globals, ops, 1);
  std::int64_t begun = 0;
  options.on_miss = settings.policy == "tune"         ? MissPolicy::tune
                    : settings.policy == "background" ? MissPolicy::background
                    : settings.policy == "nearest"    ? MissPolicy::nearest
                                                      : MissPolicy::error;
  options.stop_requested = Interrupt::requested;
  options.on_tune = [&](const TuneEvent& event) {
    if (event.kind == TuneEvent::Kind::begun) ++begun;
    progress.on({event, options.device, begun, counts.buckets});
  };
  const Engine engine(options);
  const EngineWarnings warnings(globals, engine);
  LaunchReport report = launch_trace(globals, engine, tools, trace);
  print_launches(globals, counts, report);
  VerifyReport verified;
  if (settings.verify) {
    verified = verify_trace(globals, engine, tools, trace);
    print_verified(globals, verified);
  }
  require_tunes_kept(globals, engine);
  return verified.wrong.empty() ? exit_good : exit_wrong;
}

int dry_run(const Globals& globals, const ReplaySettings& settings, std::span<const TraceEntry> trace,
            std::int64_t empty) {
  note_missing_overlay(globals);
  store::Layers layers = open_layers_to_read(globals);
  const Target target = choose_target(globals, settings.target, layers, false);
  DryReport report = look_up_trace(trace, target, Regime::cold_l2, layers);
  report.next =
      next_steps(globals, target, layers, report.missing,
                 {.tune = ranks_for(report.missing.records) > 0
                              ? "kiln prewarm WORKLOAD.toml"
                              : "kiln replay " + (settings.trace == "-" ? "TRACE" : shell_word(settings.trace)),
                  .compile = "kiln prewarm WORKLOAD.toml",
                  .note = "WORKLOAD.toml names the trace's problems, in the form that docs/deployment.md describes"});
  print_look_ups(globals, target, count(trace, empty), report, settings.policy);
  say_damaged(globals, layers);
  const bool good = std::all_of(report.buckets.begin(), report.buckets.end(),
                                [](const DryBucket& bucket) { return bucket.is_ready(); });
  return good ? exit_good : exit_wrong;
}

int run(const Globals& globals, const ReplaySettings& settings) {
  const manifest::Catalogue ops =
      load_ops(settings.dry_run ? globals : silenced(globals));  // the engine warns of refused ops
  std::vector<TraceEntry> trace = read_trace(settings.trace, ops);
  if (trace.empty()) throw Error(ErrorKind::bad_input, fmt::format("the trace {} holds no problem", settings.trace));
  const bool named = !settings.target.arch.empty() || !settings.target.device_class.empty();
  if (named && !settings.dry_run)
    throw Error(ErrorKind::bad_input, "--arch and --device-class need --dry-run, because launches use the present GPU");
  if (settings.dry_run && settings.verify)
    throw Error(ErrorKind::bad_input,
                "--verify checks the results of launches, and --dry-run launches nothing; leave one of them out");
  if (settings.dry_run) refuse_remote(globals, "--dry-run");
  const std::int64_t empty = leave_out_empty(trace);
  if (settings.dry_run) return dry_run(globals, settings, trace, empty);
  return or_advise("Without a GPU, --dry-run looks the trace up and launches nothing",
                   [&] { return launch(globals, settings, ops, trace, empty); });
}

}  // namespace

void add_replay(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<ReplaySettings>(
      app, chosen, "replay", "Launch a recorded stream of problems; count answers by origin; time host and device",
      declare, run, takes_all | takes_remote);
  command->footer(
      "Examples:\n  kiln replay stream.trace --verify\n  kiln replay stream.trace --policy error --base deployed.kiln     a deployment: a miss is an error\n"
      "  kiln replay stream.trace --dry-run --base deployed.kiln          without a GPU\n"
      "Exit status 1: wrong results, or with --dry-run a bucket without a record or without machine code.");
}

}  // namespace kiln::cli
