// kiln cache, and kiln cache ls. The other commands are in cache_COMMAND.cpp.
#include "cli/cache.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "cli/damaged_rows.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/record_facts.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "manifest/text.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {

namespace {

/// Throws Error(bad_input) where --overlay or --base names a file beside `file`.
void refuse_layers(const Globals& globals, const std::string& file) {
  const bool has_overlay = globals.overlay && !globals.overlay->empty();
  if (!has_overlay && globals.bases.empty()) return;
  const char* const given = !has_overlay ? "--base" : globals.bases.empty() ? "--overlay" : "--overlay and --base";
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{} is read alone, without the overlay and the bases; leave {} out, or the file", file, given));
}

}  // namespace

std::vector<NamedFile> files_to_show(const Globals& globals, const std::string& file,
                                     std::optional<store::Layers>& layers) {
  std::vector<NamedFile> files;
  if (!file.empty()) {
    refuse_layers(globals, file);
    files.push_back({file, open_records(file), nullptr});
    files.back().file = files.back().owned.get();
    files.back().file->refuse_if_damaged("read");
    return files;
  }
  require_overlay(globals);
  layers.emplace(open_layers_to_read(globals));
  for (const store::Layer& layer : layers->layers())
    if (layer.file && layer.refused.empty()) files.push_back({name_of(layer), nullptr, layer.file.get()});
  for (const NamedFile& each : files) each.file->refuse_if_damaged("read");
  return files;
}

manifest::Catalogue ops_for_display(const Globals& globals) try { return load_ops(globals); } catch (const Error&) {
  return manifest::Catalogue::of({});
}

void check_op(const Globals& globals, const std::vector<NamedFile>& files, const std::string& op) {
  if (op.empty()) return;
  std::vector<std::string> known = load_ops(globals).names();
  for (const NamedFile& each : files)
    for (const store::OpBytes& held : each.file->bytes_by_op()) known.push_back(held.op);
  if (std::find(known.begin(), known.end(), op) == known.end())
    throw Error(ErrorKind::bad_input,
                fmt::format("there is no op {}{}", manifest::quote(op), manifest::did_you_mean(op, known)));
}

std::unique_ptr<store::File> open_to_change(const Globals& globals, const std::string& file) {
  const auto overlay = layer_settings(globals).overlay;
  if (file.empty() && !overlay)
    throw Error(ErrorKind::io, "there is no overlay: name a file, or set KILN_CACHE or HOME");
  const std::filesystem::path path = file.empty() ? *overlay : std::filesystem::path(file);
  if (path.empty()) throw Error(ErrorKind::bad_input, "the overlay is in memory, as its empty path asks; name a file");
  if (!std::filesystem::exists(path))
    throw Error(ErrorKind::bad_input, fmt::format("the file {} does not exist", path.string()));
  if (store::is_text(path))
    throw Error(ErrorKind::bad_input,
                fmt::format("{} is text; take it into a .kiln file with kiln cache merge {} -o FILE.kiln first",
                            path.string(), path.string()));
  return store::File::open(path, store::Access::read_write);
}

namespace {

struct ListSettings {
  std::string file, op;
  bool shared = false, all = false;
};

void declare_list(CLI::App& command, ListSettings& settings) {
  command.add_option("file", settings.file, "This file, .kiln or .jsonl, instead of the overlay and the bases")
      ->type_name("FILE");
  command.add_option("--op", settings.op, "Only this op")->type_name("OP");
  command.add_flag("--all", settings.all, "On a terminal, list each record even where a file holds many");
  command.add_flag("--shared", settings.shared, "The records of the shared store (--remote) instead");
}

Json listed_json(const std::string& file, const store::Record& record) {
  const store::Choice& edge = record.at_edge();
  const store::Choice* without_library = edge_without_library(record);
  return {{"file", file},
          {"key", record.key},
          {"op", record.op},
          {"bucket", record.bucket},
          {"implementation", edge.implementation},
          {"config", edge.config},
          {"cost_ns", edge.cost_ns},
          {"baseline_ns", record.baseline_ns},
          {"intervals", intervals_of(record)},
          {"configs", configs_of(record).size()},
          {"without_library", without_library != nullptr ? Json(config_of(*without_library)) : Json()},
          {"device_class", record.device_class},
          {"regime", record.regime}};
}

/// "2026-09-21", "2026-09-21 to 09-23", or "2025-12-31 to 2026-01-02"
std::string days_of(std::int64_t oldest, std::int64_t newest) {
  const auto day = [](std::int64_t unix_seconds) {
    return unix_seconds > 0 ? fmt::format("{:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(unix_seconds)))
                            : std::string("unknown");
  };
  constexpr std::size_t year = 5;  // "2026-"
  std::string first = day(oldest);
  const std::string last = day(newest);
  if (first == last) return first;
  const bool is_one_year = first.substr(0, year) == last.substr(0, year);
  return fmt::format("{} to {}", first, is_one_year ? last.substr(year) : last);
}

/// One row an op: what its records hold together.
Table summary_of(const NamedFile& file, const std::vector<store::Record>& records) {
  struct Sum {
    std::size_t records = 0, intervals = 0;
    std::set<std::string> configs{};
    std::int64_t oldest = std::numeric_limits<std::int64_t>::max(), newest = 0;  // Unix seconds
  };
  std::map<std::string, Sum> ops;
  for (const store::Record& record : records) {
    Sum& sum = ops[record.op];
    ++sum.records;
    sum.intervals += intervals_of(record);
    sum.configs.merge(configs_of(record));
    sum.oldest = std::min(sum.oldest, record.provenance.unix_seconds);
    sum.newest = std::max(sum.newest, record.provenance.unix_seconds);
  }
  std::map<std::string, std::string> code;
  for (const store::OpBytes& each : file.file->bytes_by_op())
    if (each.cubins > 0)
      code[each.op] = fmt::format("{}, {}", counted(each.cubins, "cubin"), format_bytes(each.cubin_bytes));
  Table table({"op", "> records", "> intervals", "> configs", "tuned", "machine code"});
  for (const auto& [op, sum] : ops)
    table.row({op, format_count(static_cast<std::int64_t>(sum.records)),
               format_count(static_cast<std::int64_t>(sum.intervals)),
               format_count(static_cast<std::int64_t>(sum.configs.size())), days_of(sum.oldest, sum.newest),
               code.contains(op) ? code.at(op) : "none"});
  return table;
}

Table table_of(const manifest::Catalogue& ops, const std::vector<store::Record>& records) {
  Table table(
      {"op", "bucket", "fastest at its edge", "> time", "> default", "> intervals", "> configs", "device class"});
  for (const store::Record& record : records) {
    const store::Choice& edge = record.at_edge();
    const std::string bucket = display_stored(ops, record.op, record.bucket);
    table.row({record.op, bucket, config_of(edge), format_time(edge.cost_ns), format_time(record.baseline_ns),
               format_count(static_cast<std::int64_t>(intervals_of(record))),
               format_count(static_cast<std::int64_t>(configs_of(record).size())), record.device_class});
    if (const store::Choice* const without_library = edge_without_library(record))
      table.row({record.op, bucket + ", without a library", config_of(*without_library),
                 format_time(without_library->cost_ns), format_time(record.baseline_ns), "", "", record.device_class});
  }
  return table;
}

/// Prints a file's records, or on a terminal a summary of many: `briefly`.
void print_list(const manifest::Catalogue& ops, const NamedFile& file, const std::vector<store::Record>& records,
                bool briefly) {
  constexpr std::size_t many = 100;
  Table table = table_of(ops, records);
  const std::string device_class = table.take_common_last();
  const bool sums = briefly && records.size() > many && output_width() > 0;
  if (sums) table = summary_of(file, records);
  print(wrapped_text(fmt::format("{}: {}{}\n", file.name, counted(static_cast<std::int64_t>(records.size()), "record"),
                                 device_class.empty() ? "" : " for " + with_name(device_class)),
                     2));
  if (!table.empty()) print(table.text(2));
  print(sums ? "kiln cache ls --op OP lists an op's records, --all those of all ops\n\n" : "\n");
}

int list(const Globals& globals, const ListSettings& settings) {
  std::optional<store::Layers> layers;
  if (settings.shared && !settings.file.empty())
    throw Error(ErrorKind::bad_input, "both a file and --shared are given; give one of them");
  if (globals.remote && !globals.remote->empty() && !settings.shared)
    throw Error(ErrorKind::bad_input, "--remote is for --shared; add --shared, or leave --remote out");
  std::vector<NamedFile> files;
  if (settings.shared)
    files.push_back(shared_records(globals, settings.op));
  else
    files = files_to_show(globals, settings.file, layers);
  check_op(globals, files, settings.op);
  const manifest::Catalogue ops = ops_for_display(globals);
  for (const NamedFile& each : files) {
    auto records = each.file->records(settings.op);
    std::sort(records.begin(), records.end(),
              [](const store::Record& a, const store::Record& b) { return reads_before(a.key, b.key); });
    if (globals.json)
      for (const store::Record& record : records) print_json(listed_json(each.name, record));
    else
      print_list(ops, each, records, settings.op.empty() && !settings.all);
    say_damaged(globals, *each.file);
  }
  return exit_good;
}

}  // namespace

void say_left_behind(const Globals& globals, const std::string& what, std::int64_t untrusted_cubins) {
  if (untrusted_cubins > 0 && !globals.quiet)
    note(fmt::format(
        "{} of {} {} left behind, because the trust policy does not let that file supply machine code; what is needed is compiled",
        counted(untrusted_cubins, "cubin"), what, verb(untrusted_cubins, "was", "were")));
}

void say_flawed(const Globals& globals, const std::string& path, std::int64_t rows) {
  if (rows > 0 && !globals.quiet)
    note(fmt::format("{} of {} did not hold and {} left behind; kiln cache verify has the names", counted(rows, "row"),
                     path, verb(rows, "was", "were")));
}

void add_cache(CLI::App& app, Chosen& chosen) {
  CLI::App* cache =
      app.add_subcommand("cache", "List, show, compare, merge, export, prune, verify, sign and share files of records");
  cache->require_subcommand(1);
  add_command<ListSettings>(*cache, chosen, "ls", "List the records of the overlay and the bases, or of one file",
                            declare_list, list, takes_layers | takes_templates | takes_remote);
  for (const auto add : {add_cache_show, add_cache_stats, add_cache_diff, add_cache_export, add_cache_merge,
                         add_cache_prune, add_cache_compact, add_cache_verify, add_cache_sign, add_cache_push})
    add(*cache, chosen);
  cache->footer(
      "Examples:\n  kiln cache ls --op rms_norm\n  kiln cache show rms_norm rows=512 cols=4096\n"
      "  kiln cache diff release-1.kiln release-2.kiln\n  kiln cache export --text -o h200.jsonl\n"
      "  kiln cache import colleague.kiln\n  kiln cache merge a.kiln b.jsonl -o both.kiln\n"
      "  kiln cache prune --unused 90d --dry-run\n  kiln cache verify both.kiln\n"
      "  kiln cache sign both.kiln --key release.pem\n"
      "  kiln cache push --remote /nfs/kiln --key cluster.pem\n"
      "Each command has its own --help.");
}

}  // namespace kiln::cli
