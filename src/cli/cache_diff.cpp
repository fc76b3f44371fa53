// kiln cache diff: what two files say under the same keys.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/cache.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "store/diff.hpp"

namespace kiln::cli {
namespace {

struct Settings {
  std::string before, after;
  bool all = false, exit_code = false;
};

void declare(CLI::App& command, Settings& settings) {
  command.add_option("a", settings.before, "The file to compare with, .kiln or .jsonl")->required()->type_name("A");
  command.add_option("b", settings.after, "The other one")->required()->type_name("B");
  command.add_flag("--all", settings.all, "Also the records that are the same in both");
  command.add_flag("--exit-code", settings.exit_code, "Exit with 1 when the files differ");
}

/// A change as it is printed; the records that it came from are gone by then.
struct Row {
  store::Change change = store::Change::same;
  double ratio = 0;
  bool other_winner = false, intervals_overlap = false;
  std::string key, op, bucket, device_class;
  struct Side {
    std::string winner;
    double cost_ns = 0, low_ns = 0, high_ns = 0;
  };
  std::optional<Side> before, after;
  std::vector<store::EnvironmentChange> environment;
};

std::optional<Row::Side> side_of(const store::Record* record) {
  if (record == nullptr) return std::nullopt;
  return Row::Side{record->implementation + " " + record->config, record->cost_ns, record->low_ns, record->high_ns};
}

Row row_of(const store::RecordChange& change) {
  const store::Record& record = change.either();
  return {change.change,     change.cost_ratio, change.other_winner, change.intervals_overlap, record.key,
          record.op,         record.bucket,     record.device_class, side_of(change.before),   side_of(change.after),
          change.environment};
}

struct Comparison {
  std::vector<Row> rows;  // the worst ratio first; what is only in one file comes last
  store::DiffSummary summary;
  std::map<std::string, std::int64_t> environment;  // "driver 13000 -> 13010": how many records
};

Comparison compare(const Settings& settings) {
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
  return result;
}

Json json_of(const std::optional<Row::Side>& side) {
  if (!side) return nullptr;
  return {{"winner", side->winner}, {"cost_ns", side->cost_ns}, {"low_ns", side->low_ns}, {"high_ns", side->high_ns}};
}

void print_json_rows(const Comparison& comparison) {
  for (const Row& row : comparison.rows) {
    Json json{{"change", to_string(row.change)},
              {"key", row.key},
              {"before", json_of(row.before)},
              {"after", json_of(row.after)},
              {"cost_ratio", row.ratio > 0 ? Json(row.ratio) : Json(nullptr)},
              {"other_winner", row.other_winner},
              {"intervals_overlap", row.intervals_overlap},
              {"environment", Json::array()}};
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
              {"geometric_mean_ratio",
               summary.geometric_mean_ratio > 0 ? Json(summary.geometric_mean_ratio) : Json(nullptr)}});
}

std::string winners(const Row& row) {
  if (!row.before) return row.after->winner;
  if (!row.after || !row.other_winner) return row.before->winner;
  return fmt::format("{} -> {}", row.before->winner, row.after->winner);
}

void print_text(const Comparison& comparison) {
  Table table({"change", "op", "bucket", "> A", "> B", "> B / A", "", "winner", "device class"});
  for (const Row& row : comparison.rows)
    table.row({std::string(to_string(row.change)), row.op, row.bucket,
               row.before ? format_time(row.before->cost_ns) : "", row.after ? format_time(row.after->cost_ns) : "",
               row.ratio > 0 ? format_ratio(row.ratio) : "",
               row.before && row.after && row.intervals_overlap ? "within the intervals" : "", winners(row),
               row.device_class});
  if (!table.empty()) print(table.text() + "\n");
  for (const auto& [change, records] : comparison.environment)
    print(fmt::format("{} ({} records)\n", change, format_count(records)));
  const store::DiffSummary& summary = comparison.summary;
  print(fmt::format("{} gained, {} lost, {} changed, {} the same{}\n", format_count(summary.gained),
                    format_count(summary.lost), format_count(summary.changed), format_count(summary.same),
                    summary.geometric_mean_ratio > 0
                        ? fmt::format("; B takes {} of A's time on the records of both (geometric mean)",
                                      format_ratio(summary.geometric_mean_ratio))
                        : ""));
}

int run(const Globals& globals, const Settings& settings) {
  const Comparison comparison = compare(settings);
  globals.json ? print_json_rows(comparison) : print_text(comparison);
  return settings.exit_code && comparison.summary.differ() ? exit_wrong : exit_good;
}

}  // namespace

void add_cache_diff(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<Settings>(
      cache, chosen, "diff", "Records that B gained, lost or has otherwise than A, the worst cost ratio first", declare,
      run);
  command->footer(
      "A record of both is changed when its winner is another one, or when its 95 % intervals do not overlap. Machine code is\n"
      "not compared. With --json: an object a record, then one of \"event\": \"summary\".\n"
      "Example:\n  kiln cache diff release-1.kiln release-2.kiln --exit-code\n"
      "Exit status 0, also when they differ; with --exit-code 1 then.");
}

}  // namespace kiln::cli
