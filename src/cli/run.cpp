// kiln run: launches, verifies and times one problem.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/kept.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/record_facts.hpp"
#include "cli/runtime_values.hpp"
#include "cli/table.hpp"
#include "cli/tools.hpp"
#include "cli/tune_progress.hpp"
#include "cli/units.hpp"
#include "kiln/engine.hpp"
#include "kiln/error.hpp"
#include "tune/measure.hpp"
#include "tune/preparation.hpp"
#include "tune/verification_case.hpp"

namespace kiln::cli {
namespace {

struct RunSettings {
  std::string op;
  std::vector<std::string> words;
  bool no_verify = false;
  std::int64_t iterations = 0;
};

void declare(CLI::App& command, RunSettings& settings) {
  command.add_option("op", settings.op, "The op, see kiln ops")->required()->type_name("OP");
  command
      .add_option(
          "problem", settings.words,
          "A size for each axis, words for types and choices (rows=137 cols=4096 dtype=bf16), run-time values (epsilon=1e-5)")
      ->required()
      ->type_name("NAME=VALUE");
  command.add_flag("--no-verify", settings.no_verify, "Do not compare with the op's reference");
  command
      .add_option("--iterations", settings.iterations, "The number of timed launches; by default a time budget decides")
      ->transform(whole_number_from(1, 10000000))
      ->type_name("N");
}

struct Ran {
  Origin origin = Origin::default_;
  Plan plan;
  tune::Check check;
  tune::Cost cost;
};

/// Keeps the first wrong result, and the largest error.
void join(tune::Check& all, tune::Check check, const std::string& inputs) {
  all.worst_error = std::max(all.worst_error, check.worst_error);
  if (!all.right || check.right) return;
  all.right = false;
  all.reason = inputs.empty() ? std::move(check.reason) : fmt::format("{}: {}", inputs.substr(1), check.reason);
}

Ran launch_and_time(Tools& tools, const Op& op, const manifest::Op& described, const Problem& problem,
                    const tune::Placement& placement, const RunSettings& settings) {
  const cuda::Stream stream;
  const std::vector<std::size_t> cases = tune::cases_timed_last(described);
  const auto seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  tune::VerificationCase tensors({described, tools.facts()}, problem, tools.arch(), tools.cubins, seed,
                                 stream.handle());
  const Arguments& arguments = tensors.arguments();
  const Plan plan = op.plan(problem, stream.handle());
  Origin origin = Origin::default_;
  tune::Check check;
  check.right = true;
  for (const std::size_t each : cases) {
    if (settings.no_verify && each != cases.back()) continue;
    tune::Placement placed = placement;
    placed.prepare_case = each;
    if (described.prepare || !placement.runtime.empty() || !placement.reals.empty())
      tensors.retarget(problem, seed, stream.handle(), placed);
    tensors.poison(stream.handle());
    origin = op.launch(problem, arguments, stream.handle());
    stream.synchronize();
    if (!settings.no_verify) join(check, tensors.check(stream.handle()), tune::inputs_text(described, each));
  }
  tune::MeasureLimits limits;
  if (settings.iterations > 0) limits.minimum_samples = limits.maximum_samples = settings.iterations;
  tune::Stopwatch stopwatch(tools.facts(), Regime::cold_l2, tools.arch(), tools.cubins);
  const auto launch = [&](CUstream on) { op.launch(problem, arguments, on); };
  return {origin, plan, check, stopwatch.measure(launch, stream.handle(), limits)};
}

void print_json_ran(const RunSettings& settings, const manifest::Op& op, const Problem& problem, const Ran& ran,
                    const Rates& rates) {
  Json json{{"event", "ran"},
            {"op", op.name},
            {"problem", manifest::to_string(op, problem)},
            {"bucket", manifest::to_string(op, manifest::bucket_of(op, problem))},
            {"origin", to_string(ran.origin)},
            {"implementation", ran.plan.implementation()},
            {"config", ran.plan.config()},
            {"cost_ns", ran.cost.median_ns},
            {"low_ns", ran.cost.low_ns},
            {"high_ns", ran.cost.high_ns},
            {"samples", ran.cost.samples},
            {"bytes_per_second", rates.bytes_per_second},
            {"flops_per_second", rates.flops_per_second}};
  const Footprint footprint = ran.plan.footprint();
  json.update({{"registers", footprint.registers},
               {"spill_bytes", footprint.spill_bytes},
               {"blocks_per_multiprocessor", footprint.blocks_per_multiprocessor}});
  if (!settings.no_verify)
    json.update({{"verified", ran.check.right}, {"worst_error", ran.check.worst_error}, {"reason", ran.check.reason}});
  print_json(json);
}

/// When the plan's config is not legal at the real size, a default is launched.
std::string what_was_launched(const Ran& ran) {
  if (ran.origin == Origin::default_ && ran.plan.origin() != Origin::default_)
    return fmt::format("the default, because {} {} is not legal at this size", ran.plan.implementation(),
                       ran.plan.config());
  return fmt::format("{} {}", ran.plan.implementation(), ran.plan.config());
}

void print_text_ran(const RunSettings& settings, const manifest::Op& op, const Problem& problem, const Ran& ran,
                    const Rates& rates) {
  Table table({"", ""});
  table.row({"problem", fmt::format("{} {}", op.name, manifest::display_text(op, problem))});
  table.row({"bucket", manifest::display_text(op, manifest::bucket_of(op, problem))});
  table.row({"answer from", std::string(to_string(ran.origin))});
  table.row({"launched", what_was_launched(ran)});
  const Footprint footprint = ran.plan.footprint();
  table.row({"resources", fmt::format("{}, {} spilled, {} a multiprocessor", counted(footprint.registers, "register"),
                                      counted(footprint.spill_bytes, "byte"),
                                      counted(footprint.blocks_per_multiprocessor, "block"))});
  if (!settings.no_verify)
    table.row({"verified", ran.check.right ? fmt::format("right; largest error {:.2g} of the output's root mean square",
                                                         ran.check.worst_error)
                                           : "WRONG: " + ran.check.reason});
  table.row({"time", fmt::format("{} (95 % interval {} to {}, {}, L2 flushed)", format_time(ran.cost.median_ns),
                                 format_time(ran.cost.low_ns), format_time(ran.cost.high_ns),
                                 counted(ran.cost.samples, "launch"))});
  table.row({"bandwidth", format_bandwidth(rates.bytes_per_second)});
  table.row({"throughput", format_throughput(rates.flops_per_second)});
  print(table.text());
}

/// For a problem with a size of 0, for which no GPU is asked.
int run_nothing(const Globals& globals, const manifest::Op& op, const Problem& problem) {
  if (globals.json)
    print_json({{"event", "ran"}, {"op", op.name}, {"problem", manifest::to_string(op, problem)}, {"launched", 0}});
  else
    print(fmt::format("{} {}: a size is 0, so nothing is launched, and outputs stay as they are\n", op.name,
                      manifest::display_text(op, problem)));
  return exit_good;
}

int run(const Globals& globals, const RunSettings& settings) {
  const manifest::Catalogue ops = load_ops(silenced(globals));  // the engine warns of refused ops
  const manifest::Op& described = find_op(ops, settings.op);
  if (described.is_of_team())
    throw Error(
        ErrorKind::bad_input,
        fmt::format("{} is an op of a team, which kiln run does not launch; kiln tune verifies and times it on all "
                    "ranks, and kiln explain says what would be launched",
                    described.name));
  std::vector<std::string> words = settings.words;
  const tune::Placement placement = take_runtime_values(described, words);
  const Problem problem = parse_problem(described, words, manifest::Zeros::taken);
  if (manifest::is_empty(described, problem)) return run_nothing(globals, described, problem);
  TuneProgress progress(globals, ops, 1);
  Options options = engine_options(globals);
  Tools tools(silenced(globals));  // the engine warns of its files
  options.stop_requested = Interrupt::requested;
  options.on_tune = [&](const TuneEvent& event) { progress.on({event, options.device, 1, 1}); };
  const Engine engine(options);
  const Interrupt interrupt;  // after the files are open: Ctrl-C ends a wait for a lock at once
  const EngineWarnings warnings(globals, engine);
  const cuda::Context::Scope scope(tools.context);
  const Ran ran = launch_and_time(tools, engine.op(described.name), described, problem, placement, settings);
  const Rates rates = rates_of(described, problem, tools.facts(), ran.cost.median_ns);
  globals.json ? print_json_ran(settings, described, problem, ran, rates)
               : print_text_ran(settings, described, problem, ran, rates);
  require_tunes_kept(globals, engine);
  return ran.check.right ? exit_good : exit_wrong;
}

}  // namespace

void add_run(CLI::App& app, Chosen& chosen) {
  CLI::App* command =
      add_command<RunSettings>(app, chosen, "run", "Launch one problem, verify it against the op's reference, time it",
                               declare, run, takes_all | takes_remote);
  command->footer(
      "Examples:\n  kiln run rms_norm rows=137 cols=4096 dtype=bf16\n  kiln run gemm m=16 n=4096 k=4096 layout=nt --iterations 101\n"
      "Exit status 1: a wrong result.");
}

}  // namespace kiln::cli
