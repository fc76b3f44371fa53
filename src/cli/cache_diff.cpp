// kiln cache diff: compares the records of two files.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/cache.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/record_facts.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/units.hpp"
#include "store/diff.hpp"

namespace kiln::cli {
namespace {

struct CacheDiffSettings {
  std::string before, after;
  bool all = false, exit_code = false;
};

void declare(CLI::App& command, CacheDiffSettings& settings) {
  command.add_option("a", settings.before, "The earlier file, .kiln or .jsonl")->required()->type_name("A");
  command.add_option("b", settings.after, "The later file, .kiln or .jsonl")->required()->type_name("B");
  command.add_flag("--all", settings.all, "List also the records that are the same in both");
  command.add_flag("--exit-code", settings.exit_code, "Exit with 1 when the files differ");
}

/// One file's choice for some sizes.
struct Side {
  std::string config;
  double cost_ns = 0, low_ns = 0, high_ns = 0;
};

std::optional<Side> side_of(const store::Choice* choice) {
  if (choice == nullptr) return std::nullopt;
  return Side{config_of(*choice), choice->cost_ns, choice->low_ns, choice->high_ns};
}

/// A change, copied for printing: the records do not outlive the comparison.
struct Row {
  store::Change change = store::Change::same;
  double ratio = 0;
  bool intervals_overlap = false;
  std::string key, op, bucket, device_class;
  std::optional<Side> before, after;  // at the upper edge
  struct Part {
    store::Role role = store::Role::fastest;
    std::string sizes;
    std::optional<Side> before, after;
    bool intervals_overlap = false;
  };
  std::vector<Part> parts{};  // sizes whose config or time changed
  std::vector<store::EnvironmentChange> environment;
};

Row row_of(const store::RecordChange& change) {
  const store::Record& record = change.either();
  const auto edge_of = [](const store::Record* of) { return side_of(of == nullptr ? nullptr : &of->at_edge()); };
  Row row{.change = change.change,
          .ratio = change.cost_ratio,
          .intervals_overlap = change.intervals_overlap,
          .key = record.key,
          .op = record.op,
          .bucket = record.bucket,
          .device_class = record.device_class,
          .before = edge_of(change.before),
          .after = edge_of(change.after),
          .environment = change.environment};
  for (const store::ChoiceChange& each : change.choices)
    row.parts.push_back(
        {each.either().role, each.either().sizes, side_of(each.before), side_of(each.after), each.intervals_overlap});
  return row;
}

struct Comparison {
  std::vector<Row> rows;  // the worst ratio first, records of only one file last
  store::DiffSummary summary;
  std::int64_t flawed_rows = 0;                     // of both, which count as absent
  std::map<std::string, std::int64_t> environment;  // number of records by change: "driver 13000 -> 13010"
};

Comparison compare(const Globals& globals, const CacheDiffSettings& settings) {
  const auto before = open_records(settings.before);
  const auto after = open_records(settings.after);
  Comparison result;
  result.summary = store::diff(*before, *after, [&](const store::RecordChange& change) {
    for (const store::EnvironmentChange& each : change.environment)
      ++result.environment[fmt::format("{} {} -> {}", each.name, each.before, each.after)];
    if (settings.all || change.change != store::Change::same) result.rows.push_back(row_of(change));
  });
  std::stable_sort(result.rows.begin(), result.rows.end(),
                   [](const Row& a, const Row& b) { return a.ratio > b.ratio; });
  for (const auto& file : {before.get(), after.get()}) {
    result.flawed_rows += damaged_rows(*file);
    say_damaged(globals, *file);
  }
  return result;
}

Json json_of(const std::optional<Side>& side) {
  if (!side) return nullptr;
  return {{"config", side->config}, {"cost_ns", side->cost_ns}, {"low_ns", side->low_ns}, {"high_ns", side->high_ns}};
}

void print_json_rows(const Comparison& comparison) {
  for (const Row& row : comparison.rows) {
    Json json{{"change", to_string(row.change)},
              {"key", row.key},
              {"before", json_of(row.before)},
              {"after", json_of(row.after)},
              {"cost_ratio", row.ratio > 0 ? Json(row.ratio) : Json(nullptr)},
              {"intervals_overlap", row.intervals_overlap},
              {"choices", Json::array()},
              {"environment", Json::array()}};
    for (const Row::Part& each : row.parts)
      json["choices"].push_back({{"role", to_string(each.role)},
                                 {"sizes", each.sizes},
                                 {"before", json_of(each.before)},
                                 {"after", json_of(each.after)},
                                 {"intervals_overlap", each.intervals_overlap}});
    for (const store::EnvironmentChange& each : row.environment)
      json["environment"].push_back({{"name", each.name}, {"before", each.before}, {"after", each.after}});
    print_json(json);
  }
  const store::DiffSummary& summary = comparison.summary;
  print_json({{"event", "summary"},
              {"gained", summary.gained},
              {"lost", summary.lost},
              {"changed", summary.changed},
              {"same", summary.same},
              {"flawed_rows", comparison.flawed_rows},
              {"geometric_mean_ratio",
               summary.geometric_mean_ratio > 0 ? Json(summary.geometric_mean_ratio) : Json(nullptr)}});
}

std::string configs(const std::optional<Side>& before, const std::optional<Side>& after) {
  if (!before || !after) return before ? before->config : after ? after->config : "";
  return before->config == after->config ? before->config : fmt::format("{} -> {}", before->config, after->config);
}

std::string time_of(const std::optional<Side>& side) { return side ? format_time(side->cost_ns) : ""; }

void print_text(const Globals& globals, const Comparison& comparison) {
  const manifest::Catalogue ops = ops_for_display(globals);
  Table table({"change", "op", "bucket", "> A", "> B", "> B / A", "", "config", "device class"});
  for (const Row& row : comparison.rows) {
    table.row({std::string(to_string(row.change)), row.op, display_stored(ops, row.op, row.bucket), time_of(row.before),
               time_of(row.after), row.ratio > 0 ? format_ratio(row.ratio) : "",
               row.before && row.after && row.intervals_overlap ? "within the intervals" : "",
               configs(row.before, row.after), row.device_class});
    for (const Row::Part& each : row.parts) {
      if (each.sizes.empty()) continue;  // the whole bucket, which the row above shows
      const bool both = each.before && each.after && each.before->cost_ns > 0;
      table.row({"", "", fmt::format("  {}{}", each.sizes, each.role == store::Role::fastest ? "" : " without library"),
                 time_of(each.before), time_of(each.after),
                 both ? format_ratio(each.after->cost_ns / each.before->cost_ns) : "",
                 both && each.intervals_overlap ? "within the intervals" : "", configs(each.before, each.after)});
    }
  }
  const std::string device_class = table.take_common_last();
  if (!device_class.empty()) print(fmt::format("records for {}\n", with_name(device_class)));
  if (!table.empty()) print(table.text() + "\n");
  for (const auto& [change, records] : comparison.environment)
    print(wrapped_text(fmt::format("{} ({})\n", change, counted(records, "record")), 2));
  const store::DiffSummary& summary = comparison.summary;
  print(wrapped_text(fmt::format("{} gained, {} lost, {} changed, {} the same{}\n", format_count(summary.gained),
                                 format_count(summary.lost), format_count(summary.changed), format_count(summary.same),
                                 summary.geometric_mean_ratio > 0
                                     ? fmt::format("; B takes {} of A's time on the records of both (geometric mean)",
                                                   format_ratio(summary.geometric_mean_ratio))
                                     : ""),
                     2));
}

int run(const Globals& globals, const CacheDiffSettings& settings) {
  const Comparison comparison = compare(globals, settings);
  globals.json ? print_json_rows(comparison) : print_text(globals, comparison);
  return settings.exit_code && comparison.summary.differ() ? exit_wrong : exit_good;
}

}  // namespace

void add_cache_diff(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<CacheDiffSettings>(
      cache, chosen, "diff", "List the records that B gained, lost or changed against A, the worst cost ratio first",
      declare, run, takes_templates);
  command->footer(
      "A record is changed when other configs serve its sizes or its 95 % intervals do not overlap. Times are of the bucket's upper\n"
      "edge. Machine code is not compared. With --json: an object for each record, then one of \"event\": \"summary\".\n"
      "Example:\n  kiln cache diff release-1.kiln release-2.kiln --exit-code\n"
      "Exit status 0 even when they differ, but 1 with --exit-code.");
}

}  // namespace kiln::cli
