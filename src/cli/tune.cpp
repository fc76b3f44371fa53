// kiln tune: every bucket that some sizes touch, once; with --stale those whose sources have changed, again.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/ops_found.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/refine.hpp"
#include "cli/search_choice.hpp"
#include "cli/tuning.hpp"
#include "engine/stale.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

struct Settings {
  std::string op;
  std::vector<std::string> words;
  bool force = false;
  bool hot = false;
  bool stale = false;
  bool refine = false;
  double threshold = 3;
  int splits = 3;
  std::string devices;
  SearchChoice search;
};

void declare(CLI::App& command, Settings& settings) {
  command.add_option("op", settings.op, "The op, see kiln ops; with --stale it may be left out")->type_name("OP");
  command
      .add_option(
          "sizes", settings.words,
          "A size, a list or a range for each axis (rows=1..16384 cols=4096,8192), words for types and choices (dtype=bf16,f16)")
      ->type_name("NAME=VALUE");
  command.add_flag("--force", settings.force, "Tune again where there is a record already");
  command.add_flag(
      "--stale", settings.stale,
      "Tune again exactly the records of this device that were tuned from other sources than the present ones: "
      "all of them, or those of the op, or of the sizes");
  CLI::Option* refine = command.add_flag(
      "--refine", settings.refine,
      "Cut each bucket, along the op's first axis that is not exact, into equal parts, and finer ones where a gain is expected, tune each at its upper end, and keep what beats the part above; buckets without a record, or all with --force, are first tuned for their uppermost part");
  command
      .add_option(
          "--threshold", settings.threshold,
          "How much faster, in percent, a part's config must be at its upper end than that of the part above; 3 unless given")
      ->needs(refine)
      ->check(CLI::Validator(CLI::Range(0.0, 1000.0)).description(""))
      ->type_name("PERCENT");
  command
      .add_option(
          "--splits", settings.splits,
          "At how many sizes a bucket is cut in any case, and between them where a gain is expected; 3, for quarters, unless given")
      ->needs(refine)
      ->check(CLI::Validator(CLI::Range(1, 15)).description(""))
      ->type_name("N");
  declare_devices(command, settings.devices);
  declare_search(command, settings.search);
  command.add_flag("--hot-l2", settings.hot,
                   "Time with a warm L2: its records answer engines that ask for that regime");
}

/// Bad input is bad anywhere, so all of it is looked at before the device is asked.
void check(const Settings& settings, std::span<const spec::Op> ops) {
  const auto refuse = [](const char* message) { throw Error(ErrorKind::bad_input, message); };
  if (settings.stale && settings.force)
    refuse("--force and --stale were given together; --force is every record anyway");
  if (settings.stale && settings.refine)
    refuse(
        "--refine and --stale were given together; --stale ends the splits of what it tunes again, --refine then finds them");
  if (settings.op.empty() && !settings.stale) refuse("op is required; see kiln tune --help");
  if (settings.op.empty()) return;
  const spec::Op& op = find_op(ops, settings.op);
  if (settings.words.empty() && !settings.stale) refuse("sizes is required; see kiln tune --help");
  if (settings.refine) check_refinable(op);
  if (!settings.words.empty()) parse_problem_set(op, settings.words);
}

std::vector<OpBucket> buckets_named(const spec::Op& op, std::span<const std::string> words) {
  std::vector<OpBucket> buckets;
  for (const Problem& bucket : buckets_of(op, parse_problem_set(op, words))) buckets.push_back({&op, bucket});
  return buckets;
}

int finish(const Globals& globals, const TuningResult& result, std::size_t buckets) {
  print_tuned(globals, result);
  if (result.interrupted) {
    if (!globals.quiet)
      note(fmt::format("interrupted after {} of {} buckets; they are kept, and the same command continues",
                       result.buckets.size(), buckets));
    return exit_interrupted;
  }
  const bool failed = std::any_of(result.buckets.begin(), result.buckets.end(),
                                  [](const TunedBucket& bucket) { return bucket.outcome == Outcome::failed; });
  return failed ? exit_wrong : exit_good;
}

void print_renewed(const Globals& globals, const engine::Staleness& staleness, std::size_t stale,
                   const TuningResult& result) {
  const auto renewed = std::count_if(result.buckets.begin(), result.buckets.end(),
                                     [](const TunedBucket& bucket) { return bucket.outcome == Outcome::tuned; });
  if (globals.json)
    return print_json({{"event", "stale"},
                       {"records", staleness.records},
                       {"stale", stale},
                       {"renewed", renewed},
                       {"unusable", staleness.unusable}});
  print(fmt::format("{} of {} records of this device are stale, {} renewed\n", stale, staleness.records, renewed));
  if (staleness.unusable > 0)
    print(
        fmt::format("{} records cannot serve, their config not being declared or legal; kiln tune with their sizes "
                    "replaces them\n",
                    staleness.unusable));
}

int renew(const Globals& globals, const Settings& settings, const TuningDevices& devices) {
  engine::State& state = devices.first();
  const std::span<const spec::Op> all = state.ops.all();
  const spec::Op* named = settings.op.empty() ? nullptr : &find_op(all, settings.op);
  const auto ops = named == nullptr ? all : std::span<const spec::Op>(named, 1);
  const auto staleness = engine::find_stale(ops, state.context.info().facts, state.options.regime, state.layers);
  const auto asked = settings.words.empty() ? std::vector<OpBucket>() : buckets_named(*named, settings.words);
  std::vector<OpBucket> buckets;
  for (const engine::Staleness::Bucket& stale : staleness.stale) {
    const auto is_it = [&](const OpBucket& each) { return each.bucket == stale.bucket; };
    if (settings.words.empty() || std::any_of(asked.begin(), asked.end(), is_it))
      buckets.push_back({stale.op, stale.bucket});
  }
  const TuningResult result = tune_buckets(globals, devices, buckets, {Again::stale});
  const int status = buckets.empty() ? exit_good : finish(globals, result, buckets.size());
  print_renewed(globals, staleness, buckets.size(), result);
  return status;
}

bool failed_in(const TuningResult& result, const OpBucket& bucket) {
  return std::any_of(result.buckets.begin(), result.buckets.end(), [&](const TunedBucket& each) {
    return each.outcome == Outcome::failed && each.of.bucket == bucket.bucket;
  });
}

int run(const Globals& globals, const Settings& settings) {
  const std::vector<spec::Op> ops = load_ops(globals);
  check(settings, ops);
  Options options = engine_options(globals);
  options.search = search_settings(settings.search);
  options.regime = settings.hot ? Regime::hot_l2 : Regime::cold_l2;
  const TuningDevices devices(globals, settings.devices, options);
  if (settings.stale) return renew(globals, settings, devices);
  auto buckets = buckets_named(find_op(devices.first().ops.all(), settings.op), settings.words);
  if (devices.size() > 1) buckets = longest_first(buckets, devices.first());
  TuningChoice choice{settings.force ? Again::all : Again::none};
  if (settings.refine)
    choice.lowest = [&](const OpBucket& each) { return bench::top_part_from(*each.op, each.bucket, settings.splits); };
  const TuningResult result = tune_buckets(globals, devices, buckets, choice);
  const int status = finish(globals, result, buckets.size() * devices.classes());
  if (!settings.refine || result.interrupted) return status;
  std::erase_if(buckets, [&](const OpBucket& bucket) { return failed_in(result, bucket); });
  return std::max(status, refine_buckets(globals, devices, buckets, {settings.threshold / 100, settings.splits}));
}

}  // namespace

void add_tune(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<Settings>(
      app, chosen, "tune", "Find the best config for every bucket that some sizes touch", declare, run);
  command->footer(
      "Examples:\n  kiln tune rms_norm rows=1..16384 cols=4096,8192 dtype=bf16\n  kiln tune gemm m=1..16384 n=4096 k=4096 layout=nt\n"
      "  kiln tune gemm m=1..16384 n=4096 k=4096 --refine     lengths below a split are served by their own config\n"
      "  kiln tune --stale                                    after an op's source was changed\n"
      "Ctrl-C ends it cleanly: finished buckets are kept, and the same command continues.");
}

}  // namespace kiln::cli
