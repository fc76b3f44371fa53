// kiln coverage: computes what share of expected launches would be hits.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "answer/machine_code.hpp"
#include "cli/bucket_shapes.hpp"
#include "cli/commands.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/demand.hpp"
#include "cli/next_step.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

struct CoverageSettings {
  DemandSource source;
  TargetChoice target;
  double require = 0;
  bool require_machine_code = false;
  std::string by = "launches";
  bool all = false;
};

void declare(CLI::App& command, CoverageSettings& settings) {
  declare_demand(command, settings.source);
  command.add_option("--arch", settings.target.arch, "Compute for this architecture; needs no GPU")->type_name("ARCH");
  add_device_class(command, settings.target.device_class,
                   "Compute for this device class, when the files hold several; needs no GPU");
  CLI::Option* const require =
      command.add_option("--require", settings.require, "Exit with 1 when fewer than this many percent would be hits")
          ->transform(number_from(0, 100))
          ->type_name("PERCENT");
  command.add_flag("--require-machine-code", settings.require_machine_code,
                   "Exit with 1 when a bucket that has a record lacks machine code in the files");
  command
      .add_option("--by", settings.by,
                  "What --require counts: launches (of a workload, each bucket as one), or their time")
      ->needs(require)
      ->check(CLI::Validator(CLI::IsMember({"launches", "time"})).description(""))
      ->type_name("WHAT");
  command.add_flag("--all", settings.all, "List also the buckets that are covered");
}

struct Covered {
  const CountedBucket* demand = nullptr;
  answer::Resolution found;
  bool has_code = false;    // each config that serves some size has its machine code in the files, or needs none
  bool needs_code = false;  // some config has kernels of Kiln's
  std::optional<std::size_t> layer{};  // which supplies the first config's
};

struct Coverage {
  std::vector<Covered> buckets;
  std::int64_t hits = 0, stale = 0, with_code = 0, without_kernels = 0;
  std::map<std::size_t, std::int64_t> by_layer;  // hits with machine code, by the layer that supplies it
  MissingWork missing;
  double launches = 0, time = 0;  // the shares that would be hits
};

void find_code(Covered& bucket, const Target& target, store::Layers& layers, MissingWork& missing) {
  const OpBucket& of = bucket.demand->of;
  bucket.has_code = true;
  for (const answer::Answer* answer : bucket.found.picked_by_size()) {
    add_missing(missing, of, answer, target, layers);
    if (!answer->implementation->has_kernels()) continue;
    bucket.needs_code = true;
    const auto layer = answer::layer_with_code({*of.op, target.facts}, *answer, target.arch, layers);
    if (!layer) bucket.has_code = false;
    if (!bucket.layer) bucket.layer = layer;
  }
}

/// A bucket's shares of all launches. Launches of unknown ops are misses, and take as long as the others on average.
struct Shares {
  double launches = 0, time = 0;
};
Shares shares_of(const Demands& demands, const CountedBucket& bucket) {
  const auto launches = static_cast<double>(demands.launches), unknown = static_cast<double>(demands.unknown_launches);
  const double known = unknown > 0 ? launches / (launches + unknown) : 1;
  return {known * demands.launch_share(bucket), known * demands.time_share(bucket)};
}

Coverage cover(const Demands& demands, const Target& target, store::Layers& layers) {
  Coverage coverage;
  for (const CountedBucket& demand : demands.buckets) {
    Covered each{&demand,
                 answer::resolve({*demand.of.op, target.facts, Regime::cold_l2}, demand.of.bucket, layers, false)};
    if (each.found.is_hit()) {
      ++coverage.hits;
      coverage.stale += each.found.is_stale() ? 1 : 0;
      const Shares shares = shares_of(demands, demand);
      coverage.launches += shares.launches;
      coverage.time += shares.time;
      find_code(each, target, layers, coverage.missing);
      coverage.with_code += each.has_code ? 1 : 0;
      coverage.without_kernels += each.needs_code ? 0 : 1;
      if (each.has_code && each.layer) ++coverage.by_layer[*each.layer];
    } else {
      add_missing(coverage.missing, demand.of, nullptr, target, layers);
    }
    coverage.buckets.push_back(std::move(each));
  }
  return coverage;
}

std::string answer_of(const Covered& bucket) {
  const answer::Resolution& found = bucket.found;
  if (found.is_hit())
    return fmt::format("{}{}{}", to_string(found.answers.front().origin), found.is_stale() ? ", stale" : "",
                       bucket.has_code ? "" : ", no machine code");
  if (found.miss == answer::Miss::damaged) return "its record is damaged";
  return found.unusable.empty() ? "no record" : "its record cannot serve: " + found.unusable;
}

void print_json_coverage(const Demands& demands, const Coverage& coverage, const Target& target,
                         const std::string& unmet, std::int64_t flawed_rows, const std::vector<NextStep>& steps) {
  for (const Covered& each : coverage.buckets) {
    const Shares shares = shares_of(demands, *each.demand);
    print_json({{"event", "bucket"},
                {"op", each.demand->of.op->name},
                {"bucket", manifest::to_string(*each.demand->of.op, each.demand->of.bucket)},
                {"hit", each.found.is_hit()},
                {"stale", each.found.is_stale()},
                {"machine_code", each.has_code},
                {"answer", answer_of(each)},
                {"launches", each.demand->launches},
                {"launch_share", shares.launches},
                {"time_share", shares.time}});
  }
  print_json({{"event", "coverage"},
              {"device_class", target.facts.device_class()},
              {"counted", demands.counted},
              {"buckets", coverage.buckets.size()},
              {"hits", coverage.hits},
              {"stale", coverage.stale},
              {"with_machine_code", coverage.with_code},
              {"need_no_machine_code", coverage.without_kernels},
              {"launches", demands.launches},
              {"unknown_launches", demands.unknown_launches},
              {"launch_coverage", coverage.launches},
              {"time_coverage", coverage.time},
              {"flawed_rows", flawed_rows},
              {"unmet", unmet.empty() ? Json() : Json(unmet)},
              {"next", json_of(steps)}});
}

/// "165 of these 276 have machine code in the files: 165 from base h100.kiln; 1 needs none: a library serves it"
std::string text_of_machine_code(const Coverage& coverage, const store::Layers& layers) {
  const std::int64_t with = coverage.with_code - coverage.without_kernels, none = coverage.without_kernels;
  std::string from;
  for (const auto& [layer, buckets] : coverage.by_layer) {
    const std::string name = name_of(layers.layers()[layer]);
    from += from.empty() ? ": " : ", ";
    from += coverage.hits == 1 ? "from " + name : fmt::format("{} from {}", buckets, name);
  }
  if (coverage.hits == 1 && none == 1) return "the bucket needs no machine code: a library serves it";
  if (coverage.hits == 1)
    return fmt::format("the bucket has {}machine code in the files{}", with == 1 ? "" : "no ", from);
  const std::string rest = none == 0 ? ""
                                     : fmt::format("; {} {} none: a library serves {}", none,
                                                   verb(none, "needs", "need"), verb(none, "it", "them"));
  return fmt::format("{} of these {} {} machine code in the files{}{}", with, coverage.hits, verb(with, "has", "have"),
                     from, rest);
}

/// Says which files supply machine code, and which of them may not.
void print_machine_code(const Coverage& coverage, const store::Layers& layers) {
  if (coverage.hits > 0) print(wrapped_text(text_of_machine_code(coverage, layers) + "\n", 2));
  if (coverage.by_layer.contains(0) && layers.layers().size() > 1)
    print(wrapped_text("--overlay \"\" leaves the overlay out and shows what the bases hold alone\n", 2));
  for (const store::Layer& layer : layers.layers())
    if (layer.file && !layer.trusted_for_code && layer.file->stats().cubins > 0)
      print(wrapped_text(fmt::format("the machine code of {} does not count: {}\n", name_of(layer), layer.trust), 2));
}

void print_text_coverage(const CoverageSettings& settings, const Demands& demands, const Coverage& coverage,
                         const Target& target, const store::Layers& layers, const std::vector<NextStep>& steps) {
  const std::string counts = demands.counted ? "launches" : "buckets";
  Table table({"op", "buckets", "> of " + counts, "> of time", ""});
  std::vector<ToldBucket> listed;
  std::vector<const CountedBucket*> demanded;
  for (const Covered& each : coverage.buckets) {
    if (!settings.all && each.found.is_hit() && (!settings.require_machine_code || each.has_code)) continue;
    listed.push_back({each.demand->of, answer_of(each)});
    demanded.push_back(each.demand);
  }
  for (const BucketShape& each : shapes_of(listed)) {
    double launches = 0, time = 0;
    for (const std::size_t member : each.members) {
      const Shares shares = shares_of(demands, *demanded[member]);
      launches += shares.launches;
      time += shares.time;
    }
    table.row({each.of.op->name, each.buckets(), format_share(launches), format_share(time), each.text});
  }
  if (!table.empty()) print(table.text() + "\n");
  const std::string stale = coverage.stale > 0 ? fmt::format(" ({} stale)", coverage.stale) : std::string();
  const std::string of =
      demands.counted
          ? fmt::format("of about {} counted",
                        counted(store::capped_sum(demands.launches, demands.unknown_launches), "launch"))
          : fmt::format("of the {}, each bucket launched once", settings.source.from_records ? "records" : "workload");
  print(wrapped_text(fmt::format("{} of {} and {} of their expected time would be hits, {}\n",
                                 format_share(coverage.launches), counts, format_share(coverage.time), of),
                     2));
  print(wrapped_text(fmt::format("{} of {} {} a record{} for {} ({})\n", coverage.hits,
                                 counted(static_cast<std::int64_t>(coverage.buckets.size()), "bucket"),
                                 verb(coverage.hits, "has", "have"), stale, target.facts.device_class(), target.about),
                     2));
  if (demands.unknown_launches > 0)
    print(text_of_unknown(demands.unknown_launches) + ", and count as misses of mean time\n");
  print_machine_code(coverage, layers);
  print_next_steps(steps);
}

/// Returns what is required and not reached, or an empty string.
std::string unmet_requirement(const CoverageSettings& settings, const Coverage& coverage) {
  const double reached = settings.by == "time" ? coverage.time : coverage.launches;
  if (is_below(reached, settings.require))
    return fmt::format("the requirement is not met: {} by {}, and --require {} is asked for",
                       format_share(reached, settings.require), settings.by, settings.require);
  if (settings.require_machine_code && coverage.with_code < coverage.hits)
    return fmt::format("the requirement is not met: {} without machine code, and --require-machine-code is asked for",
                       counted(coverage.hits - coverage.with_code, "bucket"));
  return {};
}

int run(const Globals& globals, const CoverageSettings& settings) {
  const manifest::Catalogue ops = load_ops(globals);
  check_demand(settings.source, ops);  // before a device is looked for
  note_missing_overlay(globals);
  store::Layers layers = open_layers_to_read(globals);
  const Target target = choose_target(globals, settings.target, layers, false);
  const Demands demands = read_demands(settings.source, ops, target.facts, layers);
  const Coverage coverage = cover(demands, target, layers);
  const std::string prewarm = prewarm_command(settings.source);
  const std::vector<NextStep> steps =
      next_steps(globals, target, layers, coverage.missing, {.tune = prewarm + " -o FILE.kiln", .compile = prewarm});
  const std::string unmet = unmet_requirement(settings, coverage);
  globals.json ? print_json_coverage(demands, coverage, target, unmet, damaged_rows(layers), steps)
               : print_text_coverage(settings, demands, coverage, target, layers, steps);
  say_damaged(globals, layers);
  if (!unmet.empty()) say_error(globals.json, "unmet", unmet);
  return unmet.empty() ? exit_good : exit_wrong;
}

}  // namespace

void add_coverage(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<CoverageSettings>(
      app, chosen, "coverage", "Compute what share of launches would be hits, and list the buckets that would not",
      declare, run, takes_all);
  command->footer(
      "Examples:\n  kiln coverage llama3_8b.toml --base llama3_8b.kiln --require 100 \\\n"
      "    --require-machine-code --overlay \"\"                          this file alone, in CI\n"
      "  kiln coverage --from-histogram production.kiln --base deployed.kiln --device-class H200 --require 99 --by time\n"
      "Exit status 1: less is covered than --require asks for, or machine code that --require-machine-code asks for is missing.");
}

}  // namespace kiln::cli
