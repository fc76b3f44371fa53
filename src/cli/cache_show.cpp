// kiln cache show: one record in full.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/cache.hpp"
#include "cli/candidate_plot.hpp"
#include "cli/ops_found.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

struct Settings {
  std::string what, file;
  std::vector<std::string> words;
};

void declare(CLI::App& command, Settings& settings) {
  command.add_option("what", settings.what, "An op, with a problem after it; or the beginning of a record's key")
      ->required()
      ->type_name("OP|KEY");
  command.add_option("problem", settings.words, "The problem whose bucket is meant (rows=512 cols=4096)")
      ->type_name("NAME=VALUE");
  command.add_option("--file", settings.file, "This file, .kiln or .jsonl, instead of the overlay and the bases")
      ->type_name("FILE");
}

std::string when(std::int64_t unix_seconds) {
  return unix_seconds > 0 ? fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(unix_seconds)))
                          : "unknown";
}

Json json_of(const std::string& file, const store::Record& record) {
  Json json{{"file", file},
            {"key", record.key},
            {"implementation", record.implementation},
            {"config", record.config},
            {"cost_ns", record.cost_ns},
            {"low_ns", record.low_ns},
            {"high_ns", record.high_ns},
            {"samples", record.samples},
            {"baseline_ns", record.baseline_ns},
            {"source_digest", record.source_digest},
            {"kiln_version", record.provenance.kiln_version},
            {"device_name", record.provenance.device_name},
            {"driver_version", record.provenance.driver_version},
            {"compiler", record.provenance.compiler},
            {"strategy", record.provenance.strategy},
            {"unix_seconds", record.provenance.unix_seconds},
            {"candidates", Json::array()}};
  for (const store::Candidate& each : record.candidates)
    json["candidates"].push_back({{"implementation", each.implementation},
                                  {"config", each.config},
                                  {"verdict", to_string(each.verdict)},
                                  {"reason", each.reason},
                                  {"cost_ns", each.cost_ns},
                                  {"low_ns", each.low_ns},
                                  {"high_ns", each.high_ns},
                                  {"samples", each.samples},
                                  {"registers", each.registers},
                                  {"spill_bytes", each.spill_bytes},
                                  {"baseline", each.baseline}});
  return json;
}

void print_candidates(std::vector<store::Candidate> candidates) {
  const auto rank = [](const store::Candidate& each) {
    return each.verdict == store::Verdict::ok ? each.cost_ns : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const store::Candidate& a, const store::Candidate& b) { return rank(a) < rank(b); });
  Table table({"candidate", "> time", "> 95 % interval", "> samples", "> registers", "> spill", ""});
  for (const store::Candidate& each : candidates) {
    const bool ok = each.verdict == store::Verdict::ok;
    table.row({each.implementation + " " + each.config,
               ok ? format_time(each.cost_ns) : std::string(to_string(each.verdict)),
               ok ? fmt::format("{} .. {}", format_time(each.low_ns), format_time(each.high_ns)) : "",
               ok ? format_count(each.samples) : "", each.registers > 0 ? format_count(each.registers) : "",
               each.spill_bytes > 0 ? format_bytes(each.spill_bytes) : "",
               each.baseline ? "the default" : each.reason.substr(0, each.reason.find('\n'))});
  }
  print(fmt::format("  {} candidates, the fastest first:\n{}", candidates.size(), table.text(4)));
}

void print_record(const std::string& file, const store::Record& record) {
  Table table({"", ""});
  table.row({"file", file});
  table.row({"winner", fmt::format("{} {}", record.implementation, record.config)});
  table.row({"time", fmt::format("{} (95 % interval {} to {}, {} samples)", format_time(record.cost_ns),
                                 format_time(record.low_ns), format_time(record.high_ns), record.samples)});
  if (record.baseline_ns > 0)
    table.row({"default", fmt::format("{}, {}", format_time(record.baseline_ns),
                                      format_ratio(record.baseline_ns / record.cost_ns))});
  const store::Provenance& from = record.provenance;
  table.row(
      {"tuned", fmt::format("{}, on {}, driver {}, {}, kiln {}, {} search", when(from.unix_seconds), from.device_name,
                            from.driver_version, from.compiler, from.kiln_version, from.strategy)});
  table.row({"sources", record.source_digest});
  print(fmt::format("{}\n{}", record.key, table.text(2)));
  if (!record.candidates.empty()) print_candidates(record.candidates);
  if (const auto bars = plot(record, terminal_width()); !bars.empty())
    print(fmt::format("  Their times; = is the 95 % interval:\n{}", bars));
  print("\n");
}

/// Matches the bucket of a problem on any device, or the beginning of a key.
std::function<bool(const store::Record&)> matcher(const Globals& globals, const Settings& settings) {
  if (settings.words.empty())
    return [prefix = settings.what](const store::Record& record) { return record.key.starts_with(prefix); };
  const std::vector<spec::Op> ops = load_ops(globals);
  const spec::Op& op = find_op(ops, settings.what);
  const std::string bucket = spec::to_string(op, spec::bucket_of(op, parse_problem(op, settings.words)));
  return [name = op.name, bucket](const store::Record& record) { return record.op == name && record.bucket == bucket; };
}

int run(const Globals& globals, const Settings& settings) {
  const auto matches = matcher(globals, settings);
  std::optional<store::Layers> layers;
  bool any = false;
  for (const NamedFile& each : files_to_show(globals, settings.file, layers)) {
    for (const store::Record& record : each.file->records({}, true)) {
      if (!matches(record)) continue;
      any = true;
      if (globals.json)
        print_json(json_of(each.name, record));
      else
        print_record(each.name, record);
    }
  }
  if (any) return exit_good;
  throw Error(ErrorKind::not_tuned,
              fmt::format("no file holds a record for '{}{}{}'; kiln cache ls lists what they hold", settings.what,
                          settings.words.empty() ? "" : " ", fmt::join(settings.words, " ")));
}

}  // namespace

void add_cache_show(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<Settings>(
      cache, chosen, "show", "A record in full: how it was found, and every candidate by its time", declare, run);
  command->footer(
      "Examples:\n  kiln cache show rms_norm rows=512 cols=4096\n  kiln cache show gemm@1 --file h200.jsonl\n"
      "Exit status 1: no file holds such a record.");
}

}  // namespace kiln::cli
