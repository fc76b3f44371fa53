// kiln tune: every bucket that some sizes touch, once.
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/ops_found.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/tuning.hpp"

namespace kiln::cli {
namespace {

struct Settings {
  std::string op;
  std::vector<std::string> words;
  bool force = false;
  bool hot = false;
};

void declare(CLI::App& command, Settings& settings) {
  command.add_option("op", settings.op, "The op, see kiln ops")->required()->type_name("OP");
  command
      .add_option(
          "sizes", settings.words,
          "A size, a list or a range for each axis (rows=1..16384 cols=4096,8192), words for types and choices (dtype=bf16,f16)")
      ->required()
      ->type_name("NAME=VALUE");
  command.add_flag("--force", settings.force, "Tune again where there is a record already");
  command.add_flag("--hot-l2", settings.hot,
                   "Time with a warm L2: its records answer engines that ask for that regime");
}

int run(const Globals& globals, const Settings& settings) {
  const std::vector<spec::Op> ops = load_ops(globals);
  const spec::Op& named = find_op(ops, settings.op);
  const ProblemSet set =
      parse_problem_set(named, settings.words);  // before the device is asked: bad input is bad anywhere
  Options options = engine_options(globals);
  options.regime = settings.hot ? Regime::hot_l2 : Regime::cold_l2;
  engine::State state(options);
  say_warnings(globals, state.layers);
  const spec::Op& op = find_op(state.ops, settings.op);
  std::vector<OpBucket> buckets;
  for (const Problem& bucket : buckets_of(op, set)) buckets.push_back({&op, bucket});
  const TuningResult result = tune_buckets(globals, state, buckets, settings.force);
  print_tuned(globals, result, state.context.info().facts);
  if (result.interrupted) {
    if (!globals.quiet)
      note(fmt::format("interrupted after {} of {} buckets; they are kept, and the same command continues",
                       result.buckets.size(), buckets.size()));
    return exit_interrupted;
  }
  for (const TunedBucket& bucket : result.buckets)
    if (bucket.outcome == Outcome::failed) return exit_wrong;
  return exit_good;
}

}  // namespace

void add_tune(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<Settings>(
      app, chosen, "tune", "Find the best config for every bucket that some sizes touch", declare, run);
  command->footer(
      "Examples:\n  kiln tune rms_norm rows=1..16384 cols=4096,8192 dtype=bf16\n  kiln tune gemm m=1..16384 n=4096 k=4096 layout=nt\n"
      "Ctrl-C ends it cleanly: finished buckets are kept, and the same command continues.");
}

}  // namespace kiln::cli
