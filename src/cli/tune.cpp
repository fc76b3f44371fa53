// kiln tune: tunes the buckets of some sizes, or with --stale those whose sources have changed.
#include <fmt/format.h>

#include <algorithm>

#include "answer/stale.hpp"
#include "cli/commands.hpp"
#include "cli/kept.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/ranks.hpp"
#include "cli/target.hpp"
#include "cli/tuner_commands.hpp"
#include "cli/units.hpp"
#include "cli/workload.hpp"
#include "cuda/device.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

struct TuneSettings {
  std::string op;
  std::vector<std::string> words;
  bool force = false;
  bool hot = false;
  bool stale = false;
  std::string devices;
  int ranks = 0;
  SearchChoice search;
};

void declare(CLI::App& command, TuneSettings& settings) {
  command.add_option("op", settings.op, "The op, see kiln ops; with --stale it may be left out")->type_name("OP");
  command
      .add_option(
          "sizes", settings.words,
          "A size, a list or a range for each axis (rows=1..16384 cols=4096,8192), words for types and choices (dtype=bf16,f16)")
      ->type_name("NAME=VALUE");
  command.add_flag("--force", settings.force, "Tune also buckets that have a record");
  command.add_flag(
      "--stale", settings.stale,
      "Tune this device's stale records again, because their kernel sources have changed: all, or those of the op or the sizes");
  declare_devices(command, settings.devices);
  declare_ranks(command, settings.ranks);
  declare_search(command, settings.search);
  command.add_flag("--hot-l2", settings.hot, "Time with a warm L2; the records serve engines of that regime");
}

/// Checks the arguments before the device is used. Returns the ranks that the command runs on; 0: it tunes no op of a
/// team.
int check(const TuneSettings& settings, const manifest::Catalogue& ops) {
  const auto refuse = [](const char* message) { throw Error(ErrorKind::bad_input, message); };
  if (settings.stale && settings.force)
    refuse("--force and --stale were given together; --force alone tunes every bucket");
  if (settings.op.empty() && !settings.stale) refuse("no op is given; see kiln tune --help");
  if (settings.op.empty()) return settings.ranks;
  const manifest::Op& op = find_op(ops, settings.op);
  if (settings.words.empty() && !settings.stale) refuse("no sizes are given; see kiln tune --help");
  if (!op.is_of_team() && settings.ranks > 0)
    throw Error(ErrorKind::bad_input,
                fmt::format("--ranks is for ops of a team, and {} is none; leave it out", op.name));
  const int world = !op.is_of_team() ? 0 : world_of(settings.ranks, op.name + " is an op of a team");
  if (!settings.words.empty()) parse_problem_set(op, settings.words, world);
  return world;
}

std::vector<OpBucket> buckets_named(const manifest::Op& op, std::span<const std::string> words, int world) {
  std::vector<OpBucket> buckets;
  for (const Problem& bucket : buckets_of(op, parse_problem_set(op, words, world))) buckets.push_back({&op, bucket});
  return buckets;
}

Options options_of(const Globals& globals, const TuneSettings& settings) {
  Options options = engine_options(globals);
  options.search = search_settings(settings.search);
  options.regime = settings.hot ? Regime::hot_l2 : Regime::cold_l2;
  return options;
}

Retune retune_of(const TuneSettings& settings) {
  return settings.stale ? Retune::stale : settings.force ? Retune::all : Retune::none;
}

/// Throws as require_kept does, and Error(interrupted).
int status_of(const Tuner& tuner, const TuneReport& report) {
  require_kept(tuner, report);
  if (report.interrupted) throw Error(ErrorKind::interrupted, interruption_of(report));
  const bool failed =
      std::ranges::find(report.buckets, TunedBucket::Outcome::failed, &TunedBucket::outcome) != report.buckets.end();
  return failed ? exit_wrong : exit_good;
}

void print_renewed(const Globals& globals, const answer::Staleness& staleness, std::size_t stale,
                   const TuneReport& report) {
  const auto renewed = std::ranges::count(report.buckets, TunedBucket::Outcome::tuned, &TunedBucket::outcome);
  if (globals.json)
    return print_json({{"event", "stale"},
                       {"records", staleness.records},
                       {"stale", stale},
                       {"renewed", renewed},
                       {"unusable", staleness.unusable}});
  print(fmt::format("{} of {} of this device {} stale, {} renewed\n", stale, counted(staleness.records, "record"),
                    verb(stale, "is", "are"), renewed));
  if (staleness.unusable > 0)
    print(fmt::format(
        "{} cannot serve, without a config that is declared and legal; kiln tune with the same sizes replaces {}\n",
        counted(staleness.unusable, "record"), verb(staleness.unusable, "it", "them")));
}

/// What a command asks for, and which records of the device are stale where it asks for those.
struct Wanted {
  std::vector<OpBucket> buckets;
  answer::Staleness staleness;
};

Wanted find_wanted(const Globals& globals, const TuneSettings& settings, const manifest::Catalogue& ops, int world,
                   const manifest::DeviceFacts& device, store::Layers& layers) {
  const manifest::Op* named = settings.op.empty() ? nullptr : &find_op(ops, settings.op);
  const auto asked = settings.words.empty() ? std::vector<OpBucket>() : buckets_named(*named, settings.words, world);
  if (!settings.stale) return {asked, {}};
  const auto searched = named == nullptr ? ops.all() : std::span<const manifest::Op>(named, 1);
  Wanted wanted{{},
                answer::find_stale(searched, with_link(device, layers), options_of(globals, settings).regime, layers)};
  for (const answer::Staleness::Bucket& stale : wanted.staleness.stale)
    if (settings.words.empty() || std::ranges::find(asked, stale.bucket, &OpBucket::bucket) != asked.end())
      wanted.buckets.push_back({stale.op, stale.bucket});
  leave_out_other_teams(globals, wanted.buckets, world);
  return wanted;
}

/// A tune of one bucket shows its result though nothing keeps it; a tune of several would lose minutes of work.
void require_place_for(const Wanted& wanted, const Tuner& tuner) {
  if (wanted.buckets.size() > 1) require_place("what would be tuned", tuner.not_kept());
}

int tune_wanted(const Globals& globals, const TuneSettings& settings, const manifest::Catalogue& ops, const TunerOn& on,
                const Wanted& wanted) {
  const TuneReport report = tune_with_progress(globals, on, ops, wanted.buckets, {.retune = retune_of(settings)});
  const bool is_any = !settings.stale || !wanted.buckets.empty();
  if (is_any) print_tuned(globals, ops, report);
  if (settings.stale) print_renewed(globals, wanted.staleness, wanted.buckets.size(), report);
  return is_any ? status_of(on.tuner, report) : exit_good;
}

int tune_here(const Globals& globals, const TuneSettings& settings, const manifest::Catalogue& ops) {
  TunerOn on = make_tuner(globals, settings.devices, options_of(globals, settings));
  const Wanted wanted = find_wanted(globals, settings, ops, 0, on.devices.front().facts, on.layers);
  require_place_for(wanted, on.tuner);
  return tune_wanted(globals, settings, ops, on, wanted);
}

int tune_on_ranks(const Globals& globals, const TuneSettings& settings, const manifest::Catalogue& ops, int world) {
  Wanted wanted;
  const auto find = [&](const Globals& own, const manifest::DeviceFacts& device) {
    store::Layers layers = open_layers(own);
    wanted = find_wanted(own, settings, ops, world, device, layers);
    return wanted.buckets;
  };
  const auto lead = [&](const Options& options, std::span<const OpBucket> /*buckets*/) {
    const TunerOn on = make_tuner(globals, settings.devices, options,
                                  [&](const TunerOn& made) { require_place_for(wanted, made.tuner); });
    return tune_wanted(globals, settings, ops, on, wanted);
  };
  return on_ranks(globals, settings.ranks,
                  {.ops = ops,
                   .options = options_of(globals, settings),
                   .retune = retune_of(settings),
                   .find = find,
                   .finds_on_rank_0 = settings.stale && settings.ranks > 0,  // records, which another tune may renew
                   .lead = lead});
}

int run(const Globals& globals, const TuneSettings& settings) {
  const manifest::Catalogue ops = load_ops(globals, settings.op);
  const int world = check(settings, ops);
  return world > 0 ? tune_on_ranks(globals, settings, ops, world) : tune_here(globals, settings, ops);
}

}  // namespace

void add_tune(CLI::App& app, Chosen& chosen) {
  CLI::App* command =
      add_command<TuneSettings>(app, chosen, "tune", "Find the fastest configs for every bucket of some sizes", declare,
                                run, takes_all | takes_remote);
  command->footer(
      "Examples:\n  kiln tune rms_norm rows=1..16384 cols=4096,8192 dtype=bf16\n  kiln tune gemm m=1..16384 n=4096 k=4096 layout=nt\n"
      "  kiln tune --stale                             after an op's source has changed\n"
      "  kiln tune all_reduce rows=1..4096 cols=4096 dtype=bf16 --ranks 2     an op of a team, on two GPUs of this host\n"
      "A record holds a few configs, each for an interval of its bucket's sizes.\n"
      "Ctrl-C ends it cleanly: finished buckets are kept, and the same command continues.");
}

}  // namespace kiln::cli
