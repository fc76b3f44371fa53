// kiln prewarm: tunes and compiles all that a deployment needs.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/bucket_shapes.hpp"
#include "cli/commands.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/demand.hpp"
#include "cli/interrupt.hpp"
#include "cli/kept.hpp"
#include "cli/next_step.hpp"
#include "cli/output.hpp"
#include "cli/output_choice.hpp"
#include "cli/problem_set.hpp"
#include "cli/ranks.hpp"
#include "cli/signatures.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/tuner_commands.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "process/child.hpp"
#include "tune/deployment.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

struct PrewarmSettings {
  DemandSource source;
  double top = 100;
  std::int64_t limit = 0;
  std::string devices;
  int ranks = 0;
  SearchChoice search;
  TargetChoice target;
  OutputChoice output;
  bool force = false;
};

void declare(CLI::App& command, PrewarmSettings& settings) {
  declare_demand(command, settings.source);
  command.add_option("--top", settings.top, "Only the buckets that take most time, up to this percentage of it")
      ->transform(number_from(0, 100))
      ->type_name("PERCENT");
  command.add_option("--limit", settings.limit, "Only this many buckets, those that take most time")
      ->transform(whole_number_from(1, most_counted))
      ->type_name("N");
  declare_devices(command, settings.devices);
  declare_ranks(command, settings.ranks);
  declare_search(command, settings.search);
  command
      .add_option("--arch", settings.target.arch,
                  "Do not tune: compile what the files hold for this architecture; needs NVRTC, but no GPU")
      ->type_name("ARCH");
  add_device_class(command, settings.target.device_class,
                   "Do not tune: compile what the files hold for this device class");
  declare_output(command, settings.output, "Write a file to deploy, with these records and all their machine code",
                 "FILE");
  command.add_flag("--force", settings.force, "Tune also buckets that have a record");
}

/// Refuses an output that is one of the inputs, or that may not be replaced.
void check(const Globals& globals, const OutputChoice& choice) {
  const std::string& output = choice.path;
  std::vector<fs::path> inputs(globals.bases.begin(), globals.bases.end());
  if (const auto overlay = layer_settings(globals).overlay) inputs.push_back(*overlay);
  std::error_code ignored;
  for (const fs::path& input : inputs)
    if (!output.empty() && fs::equivalent(input, output, ignored))
      throw Error(ErrorKind::bad_input,
                  fmt::format("the output {} is also read by this command; choose another name", output));
  if (!output.empty() && fs::path(output).extension() != ".kiln")
    throw Error(ErrorKind::bad_input, fmt::format("the output {} is a .kiln file, so its name ends in .kiln", output));
  check_output(choice, OutputKind::records);
}

/// Refuses an output with records that these buckets do not make again.
void check_lost(const PrewarmSettings& settings, std::span<const OpBucket> buckets,
                const manifest::DeviceFacts& device) {
  if (!settings.output.path.empty() && !settings.output.replace)
    tune::check_replaced(settings.output.path, manifest::buckets_on(buckets, device));
}

constexpr int compile_bar_width = 30;
constexpr std::string_view pre_warmed = "what would be pre-warmed";

/// Draws a bar on a terminal; elsewhere prints a line for each tenth.
class CompileProgress {
 public:
  explicit CompileProgress(const Globals& globals)
      : plain_(!globals.json && !globals.quiet && !is_terminal()),
        line_(!globals.json && !globals.quiet && is_terminal()) {}

  void on(const CompileStep& step) {
    if (step.done == 0) begun_ = seconds_now(), tenth_ = 0;  // the next class of device
    const double seconds = seconds_now() - begun_;
    const auto done = static_cast<double>(step.done), total = static_cast<double>(step.total);
    const double left = step.done > 0 ? seconds / done * (total - done) : 0;
    line_.show(fmt::format("machine code {} {}/{}  {} left  {}", bar(done, total, compile_bar_width), step.done,
                           step.total, format_wait(left), step.label));
    const std::int64_t tenth = 10 * step.done / step.total;
    if (!plain_ || tenth == tenth_) return;
    tenth_ = tenth;
    note(fmt::format("machine code {}/{}, {} left", step.done, step.total, format_wait(left)));
  }

 private:
  bool plain_;
  std::int64_t tenth_ = 0;
  double begun_ = seconds_now();
  StatusLine line_;
};

/// Clears the progress line before it returns. An interruption says whether `results`, a Tuner or Layers, keeps what
/// was compiled.
template <class Results, class Deploy>
auto show_compiles(const Globals& globals, Results& results, Deploy deploy) {
  const Interrupt interrupt;
  try {
    CompileProgress progress(globals);
    return deploy([&](const CompileStep& step) { progress.on(step); });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::interrupted) throw;
    throw Error(ErrorKind::interrupted, fmt::format("{}; {}", error.what(), what_remains(results.not_kept())));
  }
}

struct Result {
  const Deployment& deployment;
  std::string about;                // the device
  bool kept = false;                // the output, or without one the overlay and the bases, hold everything
  std::vector<NextStep> next = {};  // see next_steps
};

void print_json_prewarmed(const PrewarmSettings& settings, const Result& result) {
  const Deployment& deployment = result.deployment;
  Json json{{"event", "prewarmed"},
            {"device_class", deployment.device_class},
            {"arch", deployment.arch},
            {"buckets", deployment.buckets},
            {"records", deployment.buckets - static_cast<std::int64_t>(deployment.missing.size())},
            {"stale", deployment.stale},
            {"missing", Json::array()},
            {"cubins", deployment.cubins},
            {"compiled", deployment.compiled},
            {"image_bytes", deployment.image_bytes},
            {"file", settings.output.path},
            {"kept", result.kept},
            {"next", json_of(result.next)}};
  for (const Deployment::Missing& each : deployment.missing)
    json["missing"].push_back({{"op", each.op}, {"bucket", each.bucket}, {"reason", each.why}});
  print_json(json);
}

/// Returns the reason without the bucket's own sizes, which the list shows beside it.
std::string reason_in_list(const manifest::Op& op, const Problem& bucket, std::string why) {
  const std::string sizes = " for " + manifest::display_text(op, bucket);
  if (const std::size_t at = why.find(sizes); at != std::string::npos) why.erase(at, sizes.size());
  return why;
}

void print_missing(const manifest::Catalogue& ops, const Deployment& deployment) {
  Table table({"op", "buckets", "why"});
  bool is_any_of_team = false;
  std::vector<ToldBucket> listed;
  for (const Deployment::Missing& each : deployment.missing) {
    const manifest::Op& op = find_op(ops, each.op);
    if (const auto bucket = manifest::parse_bucket(op, each.bucket))
      listed.push_back({{&op, *bucket}, reason_in_list(op, *bucket, each.why)});
    is_any_of_team = is_any_of_team || op.is_of_team();
  }
  for (const BucketShape& each : shapes_of(listed)) table.row({each.of.op->name, each.buckets(), each.text});
  print(
      "\n" +
      wrapped_text(
          fmt::format(
              "Without a record: {} of {}. Under the miss policy `nearest` another bucket's config or the op's default stands in, and its machine code is included{}:\n",
              deployment.missing.size(), counted(deployment.buckets, "bucket"),
              is_any_of_team ? "; nothing stands in for an op of a team" : ""),
          2) +
      table.text(2));
}

void print_text_prewarmed(const Globals& globals, const PrewarmSettings& settings, const manifest::Catalogue& ops,
                          const Result& result) {
  const Deployment& deployment = result.deployment;
  const auto with_record = deployment.buckets - static_cast<std::int64_t>(deployment.missing.size());
  const std::string stale = deployment.stale > 0 ? fmt::format(" ({} stale)", deployment.stale) : std::string();
  Table table({"", ""});
  table.row({"device class", fmt::format("{} ({})", deployment.device_class, result.about)});
  table.row({"architecture", deployment.arch});
  table.row({"buckets", fmt::format("{}, {} with a record{}", deployment.buckets, with_record, stale)});
  table.row({"machine code", fmt::format("{}, {}: {} compiled now, {} from the files",
                                         counted(deployment.cubins, "cubin"), format_bytes(deployment.image_bytes),
                                         deployment.compiled, deployment.cubins - deployment.compiled)});
  const std::string& output = settings.output.path;
  const auto in_file = [&] {
    return fmt::format("{} ({})", output, format_bytes(static_cast<std::int64_t>(fs::file_size(output))));
  };
  if (result.kept) table.row({"kept in", output.empty() ? "the overlay" : in_file()});
  if (result.kept && output.empty() && !globals.bases.empty())
    table.row({"", "records of the base files stay there, so launches need both; -o FILE.kiln makes one file of them"});
  print(table.text());
  if (!deployment.missing.empty()) print_missing(ops, deployment);
  print_next_steps(result.next);
}

int finish(const Globals& globals, const PrewarmSettings& settings, const manifest::Catalogue& ops,
           const Result& result) {
  globals.json ? print_json_prewarmed(settings, result) : print_text_prewarmed(globals, settings, ops, result);
  return result.deployment.missing.empty() ? exit_good : exit_wrong;
}

void print_json_unknown(const Demands& demands) {
  if (demands.unknown_launches > 0) print_json({{"event", "unknown"}, {"launches", demands.unknown_launches}});
}

/// Prints the buckets, the most time first, with their shares of launches and time and the cumulative share of time.
void print_demands(const Globals& globals, const Demands& demands, std::size_t chosen) {
  Table table({"op", "bucket", "> launches", "> of time", "> so far"});
  double so_far = 0;
  for (std::size_t i = 0; i < chosen; ++i) {
    const CountedBucket& each = demands.buckets[i];
    so_far += demands.time_share(each);
    if (globals.json)
      print_json({{"event", "demand"},
                  {"op", each.of.op->name},
                  {"bucket", manifest::to_string(*each.of.op, each.of.bucket)},
                  {"launches", each.launches},
                  {"launch_share", demands.launch_share(each)},
                  {"time_share", demands.time_share(each)},
                  {"time_so_far", so_far}});
    else
      table.row({each.of.op->name, manifest::display_text(*each.of.op, each.of.bucket),
                 format_share(demands.launch_share(each)), format_share(demands.time_share(each)),
                 format_share(so_far)});
  }
  if (globals.json) return print_json_unknown(demands);
  print(table.text());
  print(fmt::format("{} of {}, of about {} counted\n", chosen,
                    counted(static_cast<std::int64_t>(demands.buckets.size()), "bucket"),
                    counted(demands.launches, "launch")));
  if (demands.unknown_launches > 0)
    print(text_of_unknown(demands.unknown_launches) + ", and nothing is pre-warmed for them\n");
  print("\n");
}

std::vector<OpBucket> chosen_buckets(const Globals& globals, const PrewarmSettings& settings,
                                     const manifest::Catalogue& ops, const manifest::DeviceFacts& device,
                                     store::Layers& layers, int world = 0) {
  const Demands demands = read_demands(settings.source, ops, device, layers, world);
  std::vector<OpBucket> buckets = demands.in_order();
  if (!demands.counted) return buckets;
  if (buckets.empty()) refuse_unknown(settings.source, demands.unknown_launches);
  std::size_t chosen = settings.top < 100 ? buckets_for_share(demands, settings.top / 100) : buckets.size();
  if (settings.limit > 0) chosen = std::min(chosen, static_cast<std::size_t>(settings.limit));
  print_demands(globals, demands, chosen);
  buckets.resize(chosen);
  return buckets;
}

Options options_of(const Globals& globals, const PrewarmSettings& settings) {
  Options options = engine_options(globals);
  options.search = search_settings(settings.search);
  return options;
}

Retune retune_of(const PrewarmSettings& settings) { return settings.force ? Retune::all : Retune::none; }

std::string class_of(const cuda::DeviceInfo& device) { return device.facts.device_class(); }

TunerOn make_prewarming_tuner(const Globals& globals, const PrewarmSettings& settings, const Options& options) {
  return make_tuner(globals, settings.devices, options, [&](const TunerOn& on) {
    if (settings.output.path.empty()) require_place(pre_warmed, on.tuner.not_kept());
    const bool has_one_class =
        std::ranges::adjacent_find(on.devices, std::ranges::not_equal_to(), class_of) == on.devices.end();
    if (!has_one_class && !settings.output.path.empty())
      throw Error(
          ErrorKind::bad_input,
          "the devices are of several classes and -o writes a file for one; prewarm without it, then kiln cache export --workload");
  });
}

/// Notes the signatures that the output had before `work` wrote it.
int note_signatures(const Globals& globals, const PrewarmSettings& settings, const std::function<int()>& work) {
  const std::size_t signatures = signatures_of(settings.output.path);
  const int status = work();
  say_unsigned(globals, settings.output.path, signatures);
  return status;
}

/// What the tuned buckets need, compiled, and written where there is an output: for each class of device.
std::vector<Deployment> compile_tuned(const Globals& globals, const PrewarmSettings& settings, const Tuner& tuner,
                                      std::span<const OpBucket> buckets) {
  return show_compiles(globals, tuner, [&](const auto& on_step) {
    const TuneChoice choice{.replace = settings.output.replace, .on_compile = on_step};
    const auto demands = demands_of(buckets);
    return settings.output.path.empty() ? tuner.compile(demands, choice)
                                        : std::vector{tuner.deploy(demands, settings.output.path, choice)};
  });
}

int tune_and_finish(const Globals& globals, const PrewarmSettings& settings, const manifest::Catalogue& ops,
                    const TunerOn& on, std::span<const OpBucket> buckets) {
  check_lost(settings, buckets, on.devices.front().facts);
  const TuneReport tuned = tune_with_progress(
      globals, on, ops, buckets, {.retune = retune_of(settings), .in_order = settings.source.from_histogram});
  print_tuned(globals, ops, tuned);
  if (tuned.interrupted) require_kept(on.tuner, tuned);
  if (tuned.interrupted) throw Error(ErrorKind::interrupted, interruption_of(tuned));
  const bool has_output = !settings.output.path.empty();
  int status = exit_good;
  const auto deployments = compile_tuned(globals, settings, on.tuner, buckets);
  const std::string why = has_output ? std::string() : on.tuner.not_kept();
  for (const Deployment& each : deployments) {
    if (!globals.json) print("\n");
    const auto device = std::ranges::find(on.devices, each.device_class, class_of);
    const bool is_kept = why.empty() && (has_output || lost_records(tuned) == 0);
    status = std::max(status, finish(globals, settings, ops, {each, device->name, is_kept}));
  }
  require_kept(on.tuner, tuned);
  if (!why.empty()) refuse_unkept("what was pre-warmed", why);
  return status;
}

int tune_here(const Globals& globals, const PrewarmSettings& settings, const manifest::Catalogue& ops) {
  TunerOn on = make_prewarming_tuner(globals, settings, options_of(globals, settings));
  auto buckets = chosen_buckets(globals, settings, ops, on.devices.front().facts, on.layers);
  leave_out_other_teams(globals, buckets, 0);
  return tune_and_finish(globals, settings, ops, on, buckets);
}

int tune_on_ranks(const Globals& globals, const PrewarmSettings& settings, const manifest::Catalogue& ops, int world) {
  const auto find = [&](const Globals& own, const manifest::DeviceFacts& device) {
    store::Layers layers = open_layers(own);
    auto buckets = chosen_buckets(own, settings, ops, device, layers, world);
    leave_out_other_teams(own, buckets, world);
    return buckets;
  };
  const auto lead = [&](const Options& options, std::span<const OpBucket> buckets) {
    const TunerOn on = make_prewarming_tuner(globals, settings, options);
    return note_signatures(globals, settings, [&] { return tune_and_finish(globals, settings, ops, on, buckets); });
  };
  return on_ranks(globals, settings.ranks,
                  {.ops = ops,
                   .options = options_of(globals, settings),
                   .retune = retune_of(settings),
                   .find = find,
                   .finds_on_rank_0 = settings.source.workloads.empty(),  // counts and records, which others may add to
                   .lead = lead});
}

int compile_and_finish(const Globals& globals, const PrewarmSettings& settings, const manifest::Catalogue& ops) {
  store::Layers layers = open_layers(globals);
  if (settings.output.path.empty()) require_place(pre_warmed, layers.not_kept());
  const Target target = choose_target(globals, settings.target, layers, false);
  jit::CompilePool pool({.program = process::find_worker({})});
  answer::Cubins cubins(layers, pool);
  const auto buckets = chosen_buckets(globals, settings, ops, target.facts, layers);
  check_lost(settings, buckets, target.facts);
  const Deployment deployment = show_compiles(globals, layers, [&](const auto& on_step) {
    return tune::deploy(buckets, settings.output.path,
                        {.device = target.facts,
                         .arch = target.arch,
                         .layers = layers,
                         .cubins = cubins,
                         .pool = pool,
                         .replace = settings.output.replace,
                         .stop_requested = Interrupt::requested,
                         .on_step = on_step});
  });
  const std::string why = settings.output.path.empty() ? layers.not_kept() : std::string();
  MissingWork missing;
  for (const Deployment::Missing& each : deployment.missing) {
    const manifest::Op& op = find_op(ops, each.op);
    if (const auto bucket = manifest::parse_bucket(op, each.bucket))
      add_missing(missing, {&op, *bucket}, nullptr, target, layers);
  }
  const int status = finish(
      globals, settings, ops,
      {deployment, target.about, why.empty(),
       next_steps(globals, target, layers, missing, {.tune = prewarm_command(settings.source) + " -o FILE.kiln"})});
  say_damaged(globals, layers);
  if (!why.empty()) refuse_unkept("what was pre-warmed", why);
  return status;
}

/// The ranks that the command tunes on; 0: it tunes no op of a team. Ops of a team that were counted are left out then:
/// the device that counted may have no others beside it.
int ranks_of(const PrewarmSettings& settings, const manifest::Catalogue& ops) {
  if (names_op_of_team(settings.source, ops))
    return world_of(settings.ranks, fmt::format("{} names ops of a team", fmt::join(settings.source.workloads, ", ")));
  if (settings.ranks > 0 && !settings.source.workloads.empty())
    throw Error(ErrorKind::bad_input, fmt::format("--ranks is for ops of a team, and {} names none; leave it out",
                                                  fmt::join(settings.source.workloads, ", ")));
  return settings.ranks;
}

/// Throws Error(bad_input) for options that a command without a tune would ignore.
void refuse_tuning(const PrewarmSettings& settings) {
  std::vector<std::string> ignored = given(settings.search);
  if (settings.force) ignored.emplace_back("--force");
  if (!settings.devices.empty()) ignored.emplace_back("--devices");
  if (settings.ranks > 0) ignored.emplace_back("--ranks");
  if (ignored.empty()) return;
  const auto count = static_cast<std::int64_t>(ignored.size());
  throw Error(ErrorKind::bad_input,
              fmt::format("{} {} for tuning, which needs the GPU; leave {} out, or leave out --arch and --device-class",
                          fmt::join(ignored, ", "), verb(count, "is", "are"), verb(count, "it", "them")));
}

int run(const Globals& globals, const PrewarmSettings& settings) {
  check(globals, settings.output);
  const manifest::Catalogue ops = load_ops(globals);
  const bool offline = !settings.target.arch.empty() || !settings.target.device_class.empty();
  const int world = offline ? 0 : ranks_of(settings, ops);
  check_demand(settings.source, ops, world);  // before the device is used
  if (!settings.source.from_histogram && (settings.top < 100 || settings.limit > 0))
    throw Error(ErrorKind::bad_input, "--top and --limit need counted launches; give --from-histogram with them");
  if (offline) refuse_remote(globals, "--arch and --device-class");
  if (offline) refuse_tuning(settings);
  if (offline) return note_signatures(globals, settings, [&] { return compile_and_finish(globals, settings, ops); });
  constexpr std::string_view advice =
      "Without a GPU, --device-class compiles for records of a --base: kiln prewarm WORKLOAD.toml --device-class H200 "
      "--base h200.jsonl -o FILE.kiln";
  return or_advise(advice, [&] {
    if (world > 0) return tune_on_ranks(globals, settings, ops, world);
    return note_signatures(globals, settings, [&] { return tune_here(globals, settings, ops); });
  });
}

}  // namespace

void add_prewarm(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<PrewarmSettings>(
      app, chosen, "prewarm", "Tune, or without a GPU compile, all that a workload needs; write a file to deploy",
      declare, run, takes_all | takes_remote);
  command->footer(
      "Examples:\n  kiln prewarm llama3_8b.toml -o llama3_8b.kiln               tune on this GPU what has no record\n"
      "  kiln prewarm --from-histogram production.kiln --top 99      production's launches, the most time first\n"
      "  kiln prewarm llama3_8b.toml llama3_8b_fused.toml -o llama3_8b.kiln   of both\n"
      "  kiln prewarm llama3_8b.toml --devices all   on every GPU of this host\n"
      "  kiln prewarm llama3_8b_tp2.toml --ranks 2 -o llama3_8b_tp2.kiln   ops of a team, on two GPUs\n"
      "  kiln prewarm llm.toml --arch sm_90a --base h200.kiln -o deploy.kiln   without a GPU\n"
      "  kiln prewarm --from-records --base h200.kiln --device-class H200 -o all.kiln\n"
      "                                                              the machine code of all records\n"
      "What is compiled goes into the overlay too, with -o as without, so that a repeated command continues; --overlay \"\" keeps it\n"
      "out, and coverage --overlay \"\" then shows what FILE alone holds.\n"
      "Exit status 1: some buckets have no record; stand-ins serve them.");
}

}  // namespace kiln::cli
