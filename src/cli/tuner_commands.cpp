#include "cli/tuner_commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/output_choice.hpp"
#include "cli/problem_set.hpp"
#include "cli/record_facts.hpp"
#include "cli/table.hpp"
#include "cli/tune_progress.hpp"
#include "cli/units.hpp"
#include "cuda/device.hpp"
#include "kiln/error.hpp"
#include "team/exchange.hpp"
#include "team/state.hpp"

namespace kiln::cli {
namespace {

std::vector<int> every_device() {
  std::vector<int> ordinals;
  for (const cuda::DeviceInfo& each : cuda::devices()) ordinals.push_back(each.ordinal);
  return ordinals;
}

std::vector<int> parse_ordinals(const std::string& text) {
  std::vector<int> ordinals;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int ordinal = 0;
    const auto [rest, error] = std::from_chars(at, end, ordinal);
    if (error != std::errc{} || ordinal < 0 || (rest != end && *rest != ','))
      throw Error(ErrorKind::bad_input,
                  fmt::format("--devices is '{}', expected all, or ordinals such as 0,1,3", text));
    if (std::ranges::find(ordinals, ordinal) != ordinals.end())
      throw Error(ErrorKind::bad_input,
                  fmt::format("--devices is '{}', which names device {} twice; name each device once", text, ordinal));
    ordinals.push_back(ordinal);
    if (rest == end) return ordinals;
    at = rest + 1;
  }
}

std::string_view to_string(TunedBucket::Outcome outcome) {
  switch (outcome) {
    case TunedBucket::Outcome::found: return "found";
    case TunedBucket::Outcome::tuned: return "tuned";
    case TunedBucket::Outcome::failed: return "failed";
  }
  return "unknown";
}

Rates rates_at_edge(const manifest::Op& op, const TunedBucket& bucket) {
  const auto facts = manifest::DeviceFacts::from_device_class(bucket.device_class);
  return facts ? rates_of(op, bucket.bucket, *facts, bucket.cost_ns) : Rates{};
}

Json json_of(const manifest::Op& op, const TunedBucket& bucket) {
  Json json{{"event", "result"},
            {"op", bucket.op},
            {"bucket", manifest::to_string(op, bucket.bucket)},
            {"outcome", to_string(bucket.outcome)}};
  if (bucket.outcome == TunedBucket::Outcome::failed) {
    json["reason"] = bucket.reason;
    return json;
  }
  const Rates rates = rates_at_edge(op, bucket);
  json.update({{"origin", to_string(bucket.origin)},
               {"stale", bucket.stale},
               {"implementation", bucket.implementation},
               {"config", bucket.config},
               {"configs", bucket.configs},
               {"cost_ns", bucket.cost_ns},
               {"baseline_ns", bucket.baseline_ns},
               {"bytes_per_second", rates.bytes_per_second},
               {"flops_per_second", rates.flops_per_second}});
  if (bucket.outcome == TunedBucket::Outcome::tuned) {
    json["kept"] = bucket.kept;
    json["wrong"] = bucket.wrong;
  }
  return json;
}

void add_row(Table& table, const manifest::Op& op, const TunedBucket& bucket) {
  const std::string text = manifest::display_text(op, bucket.bucket);
  if (bucket.outcome == TunedBucket::Outcome::failed) return table.row({bucket.op, text, "failed: " + bucket.reason});
  const Rates rates = rates_at_edge(op, bucket);
  const std::string from = bucket.outcome == TunedBucket::Outcome::tuned
                               ? (bucket.kept ? "tuned now" : "tuned, not kept")
                               : fmt::format("from the {}{}", to_string(bucket.origin), bucket.stale ? ", stale" : "");
  table.row({bucket.op, text, bucket.implementation + " " + bucket.config, format_count(bucket.configs),
             format_time(bucket.cost_ns), format_time(bucket.baseline_ns),
             bucket.baseline_ns > 0 ? format_ratio(bucket.baseline_ns / bucket.cost_ns) : "-",
             format_bandwidth(rates.bytes_per_second), format_throughput(rates.flops_per_second), from});
}

}  // namespace

void declare_search(CLI::App& command, SearchChoice& choice) {
  const auto add = [&](CLI::Option* option) { choice.options.push_back(option); };
  add(command
          .add_option(
              "--strategy", choice.strategy,
              "racing: the likeliest candidates first, few samples for those that cannot win; exhaustive: every candidate")
          ->check(CLI::IsMember({"racing", "exhaustive"}).description(""))
          ->type_name("NAME"));
  add(command.add_option("--trials", choice.trials, "Maximum candidates per bucket (racing; no limit by default)")
          ->transform(whole_number_from(1, 1000000))
          ->type_name("N"));
  add(command
          .add_option(
              "--seconds", choice.seconds,
              "Time limit per bucket: no candidate starts after it, and the best so far are compared (no limit by default)")
          ->transform(number_from(0.001, 1e6))
          ->type_name("SECONDS"));
  add(command.add_option("--seed", choice.seed, "The seed of racing's draws")
          ->transform(any_whole_number())
          ->type_name("N"));
  add(command
          .add_option(
              "--samples", choice.samples,
              "A file to which each tune appends all that it asked and measured, so that it can be repeated without a GPU")
          ->type_name("FILE"));
}

std::vector<std::string> given(const SearchChoice& choice) {
  std::vector<std::string> names;
  for (const CLI::Option* each : choice.options)
    if (each->count() > 0) names.push_back(each->get_name());
  return names;
}

SearchSettings search_settings(const SearchChoice& choice) {
  check_samples(choice.samples);
  SearchSettings settings;
  settings.strategy = choice.strategy == "exhaustive" ? Strategy::exhaustive : Strategy::racing;
  settings.trials = choice.trials;
  settings.time_limit = std::chrono::milliseconds(std::llround(std::ceil(choice.seconds * 1000)));
  settings.seed = choice.seed;
  settings.samples = choice.samples;
  return settings;
}

void declare_devices(CLI::App& command, std::string& devices) {
  command
      .add_option(
          "--devices", devices,
          "Distribute the buckets over these GPUs: all, or ordinals (0,1,3). All write one overlay; a bucket is tuned once for "
          "each device class")
      ->type_name("all|N,N...");
}

TunerOn make_tuner(const Globals& globals, const std::string& devices, Options options,
                   const std::function<void(const TunerOn&)>& check) {
  options.stop_requested = Interrupt::requested;
  std::optional<TunerOn> on;
  const auto open = [&] {
    const std::vector<int> ordinals = devices.empty()    ? std::vector{options.device}
                                      : devices == "all" ? every_device()
                                                         : parse_ordinals(devices);
    on.emplace(TunerOn{Tuner(options, ordinals), {}, open_layers(silenced(globals))});
    for (const int each : ordinals) {
      manifest::DeviceFacts& facts = on->devices.emplace_back(cuda::device_info(each)).facts;
      if (options.team != nullptr && options.team->device() == each)
        facts.link = team::state_of(*options.team).member->link();
    }
    if (check) check(*on);
  };
  if (options.team == nullptr) {
    open();
  } else {
    team::Rendezvous& rendezvous = team::state_of(*options.team).rendezvous;
    const team::Patience patience(rendezvous);  // rank 0 may open many devices
    team::on_all_ranks(rendezvous, "opening its files", open);
  }
  if (!globals.quiet)
    for (const std::string& warning : on->tuner.warnings()) note(warning);
  return *std::move(on);
}

std::vector<kiln::Demand> demands_of(std::span<const manifest::OpBucket> buckets) {
  std::vector<kiln::Demand> demands;
  for (const manifest::OpBucket& each : buckets) demands.push_back({each.op->name, each.bucket});
  return demands;
}

TuneReport tune_with_progress(const Globals& globals, const TunerOn& on, const manifest::Catalogue& ops,
                              std::span<const manifest::OpBucket> buckets, TuneChoice choice) {
  const std::vector<std::string> noted = on.tuner.warnings();  // by make_tuner
  TuneReport report;
  {
    const Interrupt interrupt;
    TuneProgress progress(globals, ops, on.devices.size());
    choice.on_step = [&](const TuneStep& step) { progress.on(step); };
    report = on.tuner.tune(demands_of(buckets), choice);
  }
  const std::string lost = on.tuner.not_kept();  // told at the command's end
  if (!globals.quiet)
    for (const std::string& warning : on.tuner.warnings())
      if (std::ranges::find(noted, warning) == noted.end() && (lost.empty() || !warning.starts_with(lost)))
        note(warning);
  return report;
}

std::string interruption_of(const TuneReport& report) {
  return fmt::format("interrupted after {} of {}; what is done is kept, and the same command continues",
                     report.buckets.size(), counted(static_cast<std::int64_t>(report.wanted), "bucket"));
}

void print_tuned(const Globals& globals, const manifest::Catalogue& ops, const TuneReport& report) {
  Table table({"op", "bucket", "fastest at its edge", "> configs", "> time", "> default", "> gain", "> bandwidth",
               "> throughput", ""});
  for (const TunedBucket& bucket : report.buckets) {
    const manifest::Op& op = find_op(ops, bucket.op);
    globals.json ? print_json(json_of(op, bucket)) : add_row(table, op, bucket);
  }
  if (globals.json) return;
  print(table.text());
  for (const TunedBucket& bucket : report.buckets)
    for (const std::string& each : bucket.wrong)
      print(
          fmt::format("{} {}: {}\n", bucket.op, manifest::display_text(find_op(ops, bucket.op), bucket.bucket), each));
  const auto stale = std::ranges::count_if(report.buckets, &TunedBucket::stale);
  if (stale > 0 && !globals.quiet)
    note(fmt::format(
        "{} of these records are stale: they serve, but their kernel sources have changed since; kiln tune --stale tunes them again",
        stale));
}

}  // namespace kiln::cli
