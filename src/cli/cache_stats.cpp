// kiln cache stats: prints how much the files hold and how often they were used.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/cache.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace kiln::cli {
namespace {

struct CacheStatsSettings {
  std::string file;
};

void declare(CLI::App& command, CacheStatsSettings& settings) {
  command.add_option("file", settings.file, "This file, .kiln or .jsonl, instead of the overlay and the bases")
      ->type_name("FILE");
}

/// The file's use counts, summed.
struct Uses {
  std::int64_t record_uses = 0, records_used = 0, cubin_uses = 0, cubins_used = 0;
  std::map<std::string, std::int64_t> launches, misses, shared;  // by origin, by reason, by outcome
  std::int64_t shared_bytes = 0;

  explicit Uses(const std::vector<store::Usage>& rows) {
    for (const store::Usage& row : rows) {
      if (row.source == "launch") add(row, launches[row.key]);
      if (row.source == "miss") add(row, misses[row.key]);
      if (row.source == "shared") add(row, shared[row.key]);
      if (row.source == "shared_bytes") add(row, shared_bytes);
      if (row.uses == 0) continue;  // written, and not used yet
      if (row.source == "record") {
        ++records_used;
        add(row, record_uses);
      } else if (row.source == "cubin") {
        ++cubins_used;
        add(row, cubin_uses);
      }
    }
  }

 private:
  static void add(const store::Usage& row, std::int64_t& uses) { uses = store::capped_sum(uses, row.uses); }
};

std::string name_of_op(const std::string& op) { return op.empty() ? "(Kiln's own)" : op; }

std::vector<store::HistogramRow> most_launched(store::File& file) {
  constexpr std::size_t shown = 10;
  auto rows = file.histogram();
  std::stable_sort(rows.begin(), rows.end(),
                   [](const store::HistogramRow& a, const store::HistogramRow& b) { return a.launches > b.launches; });
  rows.resize(std::min(rows.size(), shown));
  return rows;
}

Json json_of(const std::string& name, store::File& file) {
  const store::FileStats stats = file.stats();
  const Uses uses(file.usage());
  Json json{{"file", name},
            {"records", stats.records},
            {"choices", stats.choices},
            {"candidates", stats.candidates},
            {"cubins", stats.cubins},
            {"cubin_bytes", stats.cubin_bytes},
            {"cubin_image_bytes", stats.cubin_image_bytes},
            {"histogram_rows", stats.histogram_rows},
            {"leases", stats.leases},
            {"file_bytes", stats.file_bytes},
            {"free_bytes", stats.free_bytes},
            {"ops", Json::array()},
            {"launches", uses.launches},
            {"misses", uses.misses},
            {"record_uses", uses.record_uses},
            {"records_used", uses.records_used},
            {"cubin_uses", uses.cubin_uses},
            {"cubins_used", uses.cubins_used},
            {"shared", uses.shared},
            {"shared_bytes", uses.shared_bytes},
            {"most_launched", Json::array()},
            {"set_aside", stats.quarantined},
            {"quarantined", file.counters().quarantined}};
  for (const store::OpBytes& each : file.bytes_by_op())
    json["ops"].push_back({{"op", each.op},
                           {"records", each.records},
                           {"record_bytes", each.record_bytes},
                           {"cubins", each.cubins},
                           {"cubin_bytes", each.cubin_bytes}});
  for (const store::HistogramRow& each : most_launched(file))
    json["most_launched"].push_back({{"op", each.op}, {"problem", each.problem}, {"launches", each.launches}});
  return json;
}

void print_counts(const store::File& file, const store::FileStats& stats) {
  Table table({"", ""});
  table.row({"records", format_count(stats.records)});
  table.row({"intervals of sizes with a config each", format_count(stats.choices)});
  table.row({"timings of candidates", format_count(stats.candidates)});
  table.row({"cubins", fmt::format("{}, {} ({} compressed)", format_count(stats.cubins),
                                   format_bytes(stats.cubin_image_bytes), format_bytes(stats.cubin_bytes))});
  table.row({"problems in the histogram", format_count(stats.histogram_rows)});
  table.row({"leases", format_count(stats.leases)});
  table.row({"file", fmt::format("{}, of which {} would be given back by kiln cache compact",
                                 format_bytes(stats.file_bytes), format_bytes(stats.free_bytes))});
  if (stats.quarantined > 0) table.row({"rows set aside earlier", format_count(stats.quarantined)});
  if (const auto flawed = file.counters().quarantined; flawed > 0)
    table.row({"rows that did not hold", format_count(flawed)});
  print(table.text(2));
}

void print_bytes(const std::vector<store::OpBytes>& ops) {
  if (ops.empty()) return;
  Table table({"op", "> records", "> about", "> cubins", "> compressed"});
  for (const store::OpBytes& each : ops)
    table.row({name_of_op(each.op), format_count(each.records), format_bytes(each.record_bytes),
               format_count(each.cubins), format_bytes(each.cubin_bytes)});
  print("\n" + table.text(2));
}

void print_most_launched(const Globals& globals, store::File& file) {
  const manifest::Catalogue ops = ops_for_display(globals);
  Table table({"most launched", "", "> about"});
  for (const store::HistogramRow& each : most_launched(file))
    table.row({each.op, display_stored(ops, each.op, each.problem), format_count(each.launches)});
  if (!table.empty()) print("\n" + table.text(2));
}

void print_uses(const Uses& uses) {
  Table table({"", "", "> times"});
  for (const auto& [origin, count] : uses.launches) table.row({"launches from", origin, format_count(count)});
  for (const auto& [reason, count] : uses.misses) table.row({"misses", reason, format_count(count)});
  for (const auto& [outcome, count] : uses.shared) table.row({"shared store", outcome, format_count(count)});
  if (uses.shared_bytes > 0) table.row({"shared store", "read and written", format_bytes(uses.shared_bytes)});
  if (uses.records_used > 0)
    table.row({"processes served by", counted(uses.records_used, "record"), format_count(uses.record_uses)});
  if (uses.cubins_used > 0)
    table.row({"processes served by", counted(uses.cubins_used, "cubin"), format_count(uses.cubin_uses)});
  if (!table.empty()) print("\n" + table.text(2));
}

void print_text(const Globals& globals, const NamedFile& named) {
  store::File& file = *named.file;
  print(named.name + "\n");
  const Uses uses(file.usage());
  print_counts(file, file.stats());
  print_bytes(file.bytes_by_op());
  print_uses(uses);
  print_most_launched(globals, file);
  print("\n");
}

int run(const Globals& globals, const CacheStatsSettings& settings) {
  std::optional<store::Layers> layers;
  for (const NamedFile& each : files_to_show(globals, settings.file, layers)) {
    (void)each.file->records({}, true);  // counts the rows that do not hold
    globals.json ? print_json(json_of(each.name, *each.file)) : print_text(globals, each);
    say_damaged(globals, *each.file);
  }
  return exit_good;
}

}  // namespace

void add_cache_stats(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<CacheStatsSettings>(
      cache, chosen, "stats", "Print how much the files hold, by op, and how often they were used", declare, run,
      takes_layers | takes_templates);
  command->footer(
      "A process counts once for each row that served it. Launches are counted by origin, misses by reason. Only an overlay has\n"
      "counts. The histogram counts one launch in 16 and multiplies by 16. A record's bytes are approximate: records share pages.");
}

}  // namespace kiln::cli
