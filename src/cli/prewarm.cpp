// kiln prewarm: everything that a deployment's problems need, ahead of time.
#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/deployment.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/tuning.hpp"
#include "cli/units.hpp"
#include "cli/workload.hpp"
#include "kiln/error.hpp"
#include "process/program.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::string workload;
  TargetChoice target;
  std::string output;
  bool force = false;
};

void declare(CLI::App& command, Settings& settings) {
  command.add_option("workload", settings.workload, "The problems that will come (see cache/workloads)")
      ->required()
      ->type_name("WORKLOAD.toml");
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

int tune_and_finish(const Globals& globals, const Settings& settings) {
  engine::State state(engine_options(globals));
  say_warnings(globals, state.layers);
  const auto buckets = read_workload(settings.workload, state.ops);
  const TuningResult tuned = tune_buckets(globals, state, buckets, settings.force ? Again::all : Again::none);
  print_tuned(globals, tuned, state.context.info().facts);
  if (tuned.interrupted)
    throw Error(ErrorKind::interrupted,
                fmt::format("interrupted after {} of {} buckets; they are kept, and the same command continues",
                            tuned.buckets.size(), buckets.size()));
  if (!globals.json) print("\n");
  Target target;
  target.facts = state.context.info().facts;
  target.arch = state.arch;
  target.about = state.context.info().name;
  return finish(globals, settings, target, buckets, state.layers, state.cubins, state.pool);
}

int compile_and_finish(const Globals& globals, const Settings& settings, std::span<const OpBucket> buckets) {
  store::Layers layers = open_layers(globals);
  const Target target = choose_target(globals, settings.target, layers, false);
  jit::CompilePool pool({.program = process::find_worker({})});
  tune::Cubins cubins(layers, pool);
  return finish(globals, settings, target, buckets, layers, cubins, pool);
}

int run(const Globals& globals, const Settings& settings) {
  check_output(globals, settings.output);
  const std::vector<spec::Op> ops = load_ops(globals);
  const auto buckets = read_workload(settings.workload, ops);
  const bool offline = !settings.target.arch.empty() || !settings.target.device_class.empty();
  if (offline && settings.force)
    throw Error(ErrorKind::bad_input,
                "--force tunes again, which needs the GPU: it cannot be given together with --arch or --device-class");
  return offline ? compile_and_finish(globals, settings, buckets) : tune_and_finish(globals, settings);
}

}  // namespace

void add_prewarm(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<Settings>(
      app, chosen, "prewarm", "Tune, or without a GPU compile, all that a workload needs; write a file to deploy",
      declare, run);
  command->footer(
      "Examples:\n  kiln prewarm cache/workloads/llama3_8b.toml -o llama3_8b.kiln           tune what is missing on this GPU\n"
      "  kiln prewarm cache/workloads/llm.toml --arch sm_90a --base cache/h200.jsonl -o h200.kiln   without a GPU\n"
      "Exit status 1: some buckets have no record, so that something else stands in for them.");
}

}  // namespace kiln::cli
