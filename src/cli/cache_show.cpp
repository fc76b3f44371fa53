// kiln cache show: prints a record in full.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "cli/cache.hpp"
#include "cli/candidate_plot.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/record_facts.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "store/json.hpp"

namespace kiln::cli {
namespace {

struct CacheShowSettings {
  std::string what, file;
  std::vector<std::string> words;
};

void declare(CLI::App& command, CacheShowSettings& settings) {
  command.add_option("what", settings.what, "An op, followed by a problem; or the beginning of a record's key")
      ->required()
      ->type_name("OP|KEY");
  command.add_option("problem", settings.words, "A problem of the bucket (rows=512 cols=4096)")
      ->type_name("NAME=VALUE");
  command.add_option("--file", settings.file, "This file, .kiln or .jsonl, instead of the overlay and the bases")
      ->type_name("FILE");
}

std::string when(std::int64_t unix_seconds) {
  return unix_seconds > 0 ? fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(unix_seconds)))
                          : "unknown";
}

Json json_of(const std::string& file, const store::Record& record) {
  Json json{{"file", file}};
  json.update(Json::parse(store::to_json(record)));
  return json;
}

/// "5.338 .. 6.146 us", with one unit where both have it.
std::string text_of_interval(const store::Choice& choice) {
  const std::string high = format_time(choice.high_ns);
  std::string low = format_time(choice.low_ns);
  const std::string unit = high.substr(std::min(high.find(' '), high.size()));
  if (low.ends_with(unit)) low.resize(low.size() - unit.size());
  return fmt::format("{} .. {}", low, high);
}

/// "nvrtc 13.0" of "nvrtc 13.0 build 65be..."; --json has all of it.
std::string compiler_of(const store::Choice& choice) {
  return choice.compiler.substr(0, choice.compiler.find(" build "));
}

void print_choices(const store::Record& record) {
  Table table({"serves", "config", "> time", "> 95 % interval", "> samples"});
  for (const store::Choice& each : record.choices)
    table.row({fmt::format("{}{}", each.sizes.empty() ? "all" : each.sizes,
                           each.role == store::Role::fastest ? "" : ", without a library"),
               config_of(each), format_time(each.cost_ns), text_of_interval(each), format_count(each.samples)});
  const std::string samples = table.take_common_last();
  print(wrapped_text(fmt::format("  each time is at the end of its interval{}:\n",
                                 samples.empty() ? "" : fmt::format(", of {} samples", samples)),
                     2) +
        table.text(2));
}

/// The timings of one candidate.
struct CandidateRow {
  std::map<std::string, std::string> cells;  // by sizes
  const store::TriedCandidate* any = nullptr;
  double rank_ns = std::numeric_limits<double>::infinity();  // its time at the upper edge
  std::string reason;
};

void print_candidates(const store::Record& record) {
  std::map<std::string, CandidateRow> rows;
  std::vector<std::string> lengths;
  for (const store::TriedCandidate& each : record.candidates) {
    CandidateRow& row = rows[each.implementation + " " + each.config];
    const bool ok = each.verdict == store::Verdict::ok;
    row.any = &each;
    row.cells[each.sizes] = ok ? format_time(each.cost_ns) : std::string(to_string(each.verdict));
    if (ok && is_at_edge(record, each)) row.rank_ns = each.cost_ns;
    if (!ok && row.reason.empty()) row.reason = each.reason.substr(0, each.reason.find('\n'));
    if (std::ranges::find(lengths, each.sizes) == lengths.end()) lengths.push_back(each.sizes);
  }
  std::ranges::sort(lengths, reads_before);
  std::vector<std::pair<std::string, CandidateRow>> order(rows.begin(), rows.end());
  std::ranges::stable_sort(order, {}, [](const auto& each) { return each.second.rank_ns; });
  std::vector<std::string> headings{"candidate"};
  for (const std::string& each : lengths) headings.push_back("> " + (each.empty() ? "time" : each));
  headings.insert(headings.end(), {"> registers", "> spill", ""});
  Table table(headings);
  for (const auto& [name, row] : order) {
    std::vector<std::string> cells{name};
    for (const std::string& each : lengths) cells.push_back(row.cells.contains(each) ? row.cells.at(each) : "");
    const bool serves = std::ranges::find(record.choices, name, config_of) != record.choices.end();
    cells.insert(cells.end(), {row.any->registers > 0 ? format_count(row.any->registers) : "",
                               row.any->spill_bytes > 0 ? format_bytes(row.any->spill_bytes) : "",
                               serves              ? "serves"
                               : row.any->baseline ? "the default"
                                                   : row.reason});
    table.row(std::move(cells));
  }
  print(fmt::format("  {}, the fastest at the upper edge first:\n{}",
                    counted(static_cast<std::int64_t>(rows.size()), "candidate"), table.text(4)));
}

void print_record(const manifest::Catalogue& ops, const std::string& file, const store::Record& record) {
  Table table({"", ""});
  table.row({"key", record.key});
  table.row({"file", file});
  const double edge_ns = record.at_edge().cost_ns;
  if (record.baseline_ns > 0)
    table.row({"default", fmt::format("{} at the upper edge, {}", format_time(record.baseline_ns),
                                      format_ratio(record.baseline_ns / edge_ns))});
  const store::Provenance& from = record.provenance;
  table.row({"tuned", fmt::format("{}, on {}, a driver of {}, kiln {}, {}", when(from.unix_seconds), from.device_name,
                                  format_cuda(from.driver_version), from.kiln_version, from.strategy)});
  std::set<std::string> compilers;
  for (const store::Choice& each : record.choices) compilers.insert(compiler_of(each));
  table.row({"built by", fmt::format("{}", fmt::join(compilers, ", "))});
  table.row(
      {"holds", fmt::format("{} of sizes, {}", counted(static_cast<std::int64_t>(intervals_of(record)), "interval"),
                            counted(static_cast<std::int64_t>(configs_of(record).size()), "config"))});
  print(wrapped_text(fmt::format("{} {}\n", record.op, display_stored(ops, record.op, record.bucket)), 2) +
        table.text(2));
  print_choices(record);
  if (!record.candidates.empty()) print_candidates(record);
  if (const auto bars = plot(record, terminal_width()); !bars.empty())
    print(fmt::format("  Their times at the upper edge; = is the 95 % interval:\n{}", bars));
  print("\n");
}

/// Returns a test for records: of the problem's bucket on any device, or whose key begins so.
std::function<bool(const store::Record&)> matcher(const Globals& globals, const CacheShowSettings& settings) {
  if (settings.words.empty())
    return [prefix = settings.what](const store::Record& record) { return record.key.starts_with(prefix); };
  const manifest::Catalogue ops = load_ops(globals, settings.what);
  const manifest::Op& op = find_op(ops, settings.what);
  const std::string bucket = manifest::to_string(op, manifest::bucket_of(op, parse_problem(op, settings.words)));
  return [name = op.name, bucket](const store::Record& record) { return record.op == name && record.bucket == bucket; };
}

int run(const Globals& globals, const CacheShowSettings& settings) {
  const auto matches = matcher(globals, settings);
  const manifest::Catalogue ops = ops_for_display(globals);
  std::optional<store::Layers> layers;
  bool any = false;
  for (const NamedFile& each : files_to_show(globals, settings.file, layers)) {
    for (const store::Record& record : each.file->records({}, true)) {
      if (!matches(record)) continue;
      any = true;
      if (globals.json)
        print_json(json_of(each.name, record));
      else
        print_record(ops, each.name, record);
    }
    say_damaged(globals, *each.file);
  }
  if (any) return exit_good;
  throw Error(ErrorKind::not_tuned,
              fmt::format("no file holds a record for '{}{}{}'; kiln cache ls lists what they hold", settings.what,
                          settings.words.empty() ? "" : " ", fmt::join(settings.words, " ")));
}

}  // namespace

void add_cache_show(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<CacheShowSettings>(
      cache, chosen, "show",
      "Show a record: the config for each interval of sizes, how it was tuned, and the times of every candidate",
      declare, run, takes_layers | takes_templates);
  command->footer(
      "Examples:\n  kiln cache show rms_norm rows=512 cols=4096\n  kiln cache show gemm@1 --file h200.jsonl\n"
      "Exit status 1: no file holds such a record.");
}

}  // namespace kiln::cli
