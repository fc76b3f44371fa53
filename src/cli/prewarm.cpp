// kiln prewarm: everything that a deployment's problems need, ahead of time.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/demand.hpp"
#include "cli/deployment.hpp"
#include "cli/output.hpp"
#include "cli/search_choice.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/tuning.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "process/program.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  DemandSource source;
  double top = 100;
  std::int64_t limit = 0;
  std::string devices;
  SearchChoice search;
  TargetChoice target;
  std::string output;
  bool force = false;
};

void declare(CLI::App& command, Settings& settings) {
  declare_demand(command, settings.source);
  command
      .add_option("--top", settings.top,
                  "Only the buckets that take most time, until they come to this many in a hundred of it")
      ->check(CLI::Validator(CLI::Range(0.0, 100.0)).description(""))
      ->type_name("PERCENT");
  command.add_option("--limit", settings.limit, "Only this many buckets, those that take most time")
      ->check(CLI::Validator(CLI::PositiveNumber).description(""))
      ->type_name("N");
  declare_devices(command, settings.devices);
  declare_search(command, settings.search);
  command
      .add_option("--arch", settings.target.arch,
                  "No tuning: compile what the files hold for this architecture; needs NVRTC, but no GPU")
      ->type_name("ARCH");
  command
      .add_option("--device-class", settings.target.device_class,
                  "The device class to compile for, when the files hold several")
      ->type_name("CLASS");
  command
      .add_option("-o,--output", settings.output, "Write a file to deploy: these records and all their machine code")
      ->type_name("FILE");
  command.add_flag("--force", settings.force, "Tune again where there is a record already");
}

/// An output is derived and may be written again; a file that was read here may not be lost to it.
void check_output(const Globals& globals, const std::string& output) {
  std::vector<fs::path> inputs(globals.bases.begin(), globals.bases.end());
  inputs.push_back(globals.overlay ? fs::path(*globals.overlay) : store::default_overlay());
  std::error_code ignored;
  for (const fs::path& input : inputs)
    if (!output.empty() && fs::equivalent(input, output, ignored))
      throw Error(ErrorKind::bad_input,
                  fmt::format("the output {} is also read by this command; choose another name", output));
  if (!output.empty() && fs::path(output).extension() != ".kiln")
    throw Error(ErrorKind::bad_input, fmt::format("the output {} is a .kiln file, so its name ends in .kiln", output));
}

struct Totals {
  std::int64_t missing = 0, stale = 0, image_bytes = 0;

  Totals(std::span<const DeployedBucket> buckets, const DeployedCubins& cubins) {
    for (const DeployedBucket& bucket : buckets) {
      missing += bucket.record ? 0 : 1;
      stale += bucket.stale ? 1 : 0;
    }
    for (const store::CubinRow& row : cubins.rows) image_bytes += static_cast<std::int64_t>(row.image.size());
  }
};

void print_json_prewarmed(const Settings& settings, const Target& target, std::span<const DeployedBucket> buckets,
                          const DeployedCubins& cubins, const Totals& totals) {
  Json json{{"event", "prewarmed"},
            {"device_class", target.facts.device_class()},
            {"arch", target.arch},
            {"buckets", buckets.size()},
            {"records", static_cast<std::int64_t>(buckets.size()) - totals.missing},
            {"stale", totals.stale},
            {"missing", Json::array()},
            {"cubins", cubins.rows.size()},
            {"compiled", cubins.compiled},
            {"image_bytes", totals.image_bytes},
            {"file", settings.output}};
  for (const DeployedBucket& bucket : buckets)
    if (!bucket.record)
      json["missing"].push_back({{"op", bucket.of.op->name},
                                 {"bucket", spec::to_string(*bucket.of.op, bucket.of.bucket)},
                                 {"reason", bucket.missing}});
  print_json(json);
}

void print_missing(std::span<const DeployedBucket> buckets, std::int64_t missing) {
  Table table({"op", "bucket", "why"});
  for (const DeployedBucket& bucket : buckets)
    if (!bucket.record)
      table.row({bucket.of.op->name, spec::to_string(*bucket.of.op, bucket.of.bucket), bucket.missing});
  print(fmt::format(
      "\nWithout a record, {} of {} buckets. Under the miss policy `nearest` another bucket's config or the op's default stands in, and its machine code is included:\n{}",
      missing, buckets.size(), table.text(2)));
}

void print_text_prewarmed(const Settings& settings, const Target& target, std::span<const DeployedBucket> buckets,
                          const DeployedCubins& cubins, const Totals& totals) {
  const auto with_record = static_cast<std::int64_t>(buckets.size()) - totals.missing;
  const auto from_files = static_cast<std::int64_t>(cubins.rows.size()) - cubins.compiled;
  const std::string stale = totals.stale > 0 ? fmt::format(" ({} stale)", totals.stale) : std::string();
  Table table({"", ""});
  table.row({"device class", fmt::format("{} ({})", target.facts.device_class(), target.about)});
  table.row({"architecture", target.arch});
  table.row({"buckets", fmt::format("{}, of which {} have a record{}", buckets.size(), with_record, stale)});
  table.row({"machine code", fmt::format("{} cubins, {}: {} compiled now, {} from the files", cubins.rows.size(),
                                         format_bytes(totals.image_bytes), cubins.compiled, from_files)});
  const std::string& output = settings.output;
  table.row({"kept in", output.empty() ? "the overlay"
                                       : fmt::format("{} ({})", output,
                                                     format_bytes(static_cast<std::int64_t>(fs::file_size(output))))});
  print(table.text());
  if (totals.missing > 0) print_missing(buckets, totals.missing);
}

int finish(const Globals& globals, const Settings& settings, const Target& target, std::span<const OpBucket> buckets,
           store::Layers& layers, tune::Cubins& cubins, jit::CompilePool& pool) {
  const auto deployed = deployed_buckets(buckets, target.facts, Regime::cold_l2, layers);
  const auto needed = needed_specialisations(deployed, target.facts, target.arch);
  const DeployedCubins made = bring_cubins(globals, needed, cubins, pool);
  if (!settings.output.empty()) write_deployment(settings.output, deployed, made.rows);
  const Totals totals(deployed, made);
  globals.json ? print_json_prewarmed(settings, target, deployed, made, totals)
               : print_text_prewarmed(settings, target, deployed, made, totals);
  return totals.missing > 0 ? exit_wrong : exit_good;
}

/// What is asked for, the most time first, and how much of all each bucket and those before it come to.
void print_demands(const Globals& globals, const Demands& demands, std::size_t chosen) {
  Table table({"op", "bucket", "> launches", "> of time", "> so far"});
  double so_far = 0;
  for (std::size_t i = 0; i < chosen; ++i) {
    const Demand& each = demands.buckets[i];
    so_far += demands.time_share(each);
    const std::string bucket = spec::to_string(*each.of.op, each.of.bucket);
    if (globals.json)
      print_json({{"event", "demand"},
                  {"op", each.of.op->name},
                  {"bucket", bucket},
                  {"launches", each.launches},
                  {"launch_share", demands.launch_share(each)},
                  {"time_share", demands.time_share(each)},
                  {"time_so_far", so_far}});
    else
      table.row({each.of.op->name, bucket, format_share(demands.launch_share(each)),
                 format_share(demands.time_share(each)), format_share(so_far)});
  }
  if (globals.json) return;
  print(table.text());
  print(fmt::format("{} of {} buckets, of about {} launches counted\n\n", chosen, demands.buckets.size(),
                    format_count(demands.launches)));
}

std::vector<OpBucket> chosen_buckets(const Globals& globals, const Settings& settings, std::span<const spec::Op> ops,
                                     const spec::DeviceFacts& device, store::Layers& layers) {
  const Demands demands = read_demands(settings.source, ops, device, layers);
  std::vector<OpBucket> buckets = demands.in_order();
  if (!demands.counted) return buckets;
  std::size_t chosen = settings.top < 100 ? buckets_for_share(demands, settings.top / 100) : buckets.size();
  if (settings.limit > 0) chosen = std::min(chosen, static_cast<std::size_t>(settings.limit));
  print_demands(globals, demands, chosen);
  buckets.resize(chosen);
  return buckets;
}

Target target_of(const engine::State& state) {
  Target target;
  target.facts = state.context.info().facts;
  target.arch = state.arch();
  target.about = state.context.info().name;
  return target;
}

int tune_and_finish(const Globals& globals, const Settings& settings) {
  Options options = engine_options(globals);
  options.search = search_settings(settings.search);
  const TuningDevices devices(globals, settings.devices, options);
  if (devices.classes() > 1 && !settings.output.empty())
    throw Error(
        ErrorKind::bad_input,
        "the devices are of several classes and -o writes a file for one; prewarm without it, then kiln cache export --workload");
  engine::State& first = devices.first();
  auto buckets = chosen_buckets(globals, settings, first.ops.all(), first.context.info().facts, first.layers);
  if (devices.size() > 1 && !settings.source.from_histogram) buckets = longest_first(buckets, first);
  const TuningResult tuned = tune_buckets(globals, devices, buckets, {settings.force ? Again::all : Again::none});
  print_tuned(globals, tuned);
  if (tuned.interrupted)
    throw Error(ErrorKind::interrupted,
                fmt::format("interrupted after {} of {} buckets; they are kept, and the same command continues",
                            tuned.buckets.size(), buckets.size() * devices.classes()));
  int status = exit_good;
  for (std::size_t number = 0; number < devices.classes(); ++number) {
    if (!globals.json) print("\n");
    engine::State& state = devices.first_of_class(number);
    status =
        std::max(status, finish(globals, settings, target_of(state), buckets, state.layers, state.cubins, state.pool));
  }
  return status;
}

int compile_and_finish(const Globals& globals, const Settings& settings, std::span<const spec::Op> ops) {
  store::Layers layers = open_layers(globals);
  const Target target = choose_target(globals, settings.target, layers, false);
  jit::CompilePool pool({.program = process::find_worker({})});
  tune::Cubins cubins(layers, pool);
  const auto buckets = chosen_buckets(globals, settings, ops, target.facts, layers);
  return finish(globals, settings, target, buckets, layers, cubins, pool);
}

int run(const Globals& globals, const Settings& settings) {
  check_output(globals, settings.output);
  const std::vector<spec::Op> ops = load_ops(globals);
  if (!settings.source.workload.empty()) read_workload(settings.source.workload, ops);  // bad input is bad anywhere
  if (!settings.source.from_histogram && (settings.top < 100 || settings.limit > 0))
    throw Error(ErrorKind::bad_input, "--top and --limit go by counted launches: they need --from-histogram");
  const bool offline = !settings.target.arch.empty() || !settings.target.device_class.empty();
  if (offline && (settings.force || !settings.devices.empty()))
    throw Error(
        ErrorKind::bad_input,
        "--force and --devices are of tuning, which needs the GPU: neither can be given together with --arch or --device-class");
  return offline ? compile_and_finish(globals, settings, ops) : tune_and_finish(globals, settings);
}

}  // namespace

void add_prewarm(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<Settings>(
      app, chosen, "prewarm", "Tune, or without a GPU compile, all that a workload needs; write a file to deploy",
      declare, run);
  command->footer(
      "Examples:\n  kiln prewarm cache/workloads/llama3_8b.toml -o llama3_8b.kiln           tune what is missing on this GPU\n"
      "  kiln prewarm --from-histogram production.kiln --top 99      what production launches, what takes most time first\n"
      "  kiln prewarm cache/workloads/llama3_8b.toml --devices all   over every GPU of this host\n"
      "  kiln prewarm cache/workloads/llm.toml --arch sm_90a --base cache/h200.jsonl -o h200.kiln   without a GPU\n"
      "Exit status 1: some buckets have no record, so that something else stands in for them.");
}

}  // namespace kiln::cli
