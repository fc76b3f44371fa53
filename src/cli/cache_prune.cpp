// kiln cache prune and kiln cache compact: delete rows, and return free pages to the file system.
#include <fmt/format.h>

#include <algorithm>

#include "cli/cache.hpp"
#include "cli/output.hpp"
#include "cli/prune_rule.hpp"
#include "cli/signatures.hpp"
#include "cli/units.hpp"

namespace kiln::cli {
namespace {

struct Compacted {
  std::int64_t before = 0, after = 0;  // bytes of the file
};

struct CachePruneSettings {
  std::string file;
  PruneWords words;
  bool dry_run = false, no_compact = false;
};

void declare(CLI::App& command, CachePruneSettings& settings) {
  PruneWords& words = settings.words;
  command.add_option("file", settings.file, "This file instead of the overlay")->type_name("FILE");
  command.add_option("--unused", words.unused, "Rows that have served no process for this long (90d, 12h)")
      ->type_name("TIME");
  command.add_flag("--stale", words.stale,
                   "Stale records and machine code: their kernel sources have changed since they were made");
  command.add_option("--op", words.op, "Rows of this op")->type_name("OP");
  add_device_class(command, words.device_class, "Rows for this device class");
  command.add_flag("--other-devices", words.other_devices, "Rows for other devices than --device");
  command
      .add_option("--max-size", words.max_size,
                  "After the other conditions, the least valuable rows until the file fits this size (500MB, 2GiB)")
      ->type_name("SIZE");
  command.add_flag("--dry-run", settings.dry_run, "Print what would be deleted, and change nothing");
  command.add_flag("--no-compact", settings.no_compact, "Keep free pages in the file for later rows");
}

void print_json_pruned(const CachePruneSettings& settings, const store::File& file, const store::PruneReport& report,
                       const std::vector<std::string>& keys, const Compacted& bytes) {
  for (const std::string& key : keys) print_json({{"event", "record"}, {"key", key}});
  print_json({{"event", settings.dry_run ? "would_prune" : "pruned"},
              {"file", file.path().string()},
              {"records", report.records},
              {"candidates", report.candidates},
              {"cubins", report.cubins},
              {"counts", report.counts},
              {"bytes_freed", report.bytes},
              {"file_bytes_before", bytes.before},
              {"file_bytes", bytes.after}});
}

void print_pruned(const CachePruneSettings& settings, const store::File& file, const store::PruneReport& report,
                  const std::vector<std::string>& keys, const Compacted& bytes) {
  constexpr std::size_t most = 20;
  for (std::size_t i = 0; i < std::min(keys.size(), most); ++i) print(fmt::format("  {}\n", keys[i]));
  if (keys.size() > most)
    print(fmt::format("  ... {} more\n", format_count(static_cast<std::int64_t>(keys.size() - most))));
  const std::string counts = report.counts > 0 ? fmt::format(", {} of launches", counted(report.counts, "count")) : "";
  print(fmt::format("{}: {}, {}{} and {} {}, {}\n", file.path().string(), counted(report.records, "record"),
                    counted(report.candidates, "candidate"), counts, counted(report.cubins, "cubin"),
                    settings.dry_run ? "would be deleted" : "deleted", format_bytes(report.bytes)));
  if (!settings.dry_run)
    print(fmt::format("the file takes {}, before {}\n", format_bytes(bytes.after), format_bytes(bytes.before)));
}

int run(const Globals& globals, const CachePruneSettings& settings) {
  const auto file = open_to_change(globals, settings.file);
  const auto chosen = choose_rows(globals, settings.words, *file);
  chosen->rule.dry_run = settings.dry_run;
  Compacted bytes{file->stats().file_bytes, 0};
  const std::size_t signatures = signatures_of(file->path().string());
  const store::PruneReport report = file->prune(chosen->rule);
  const bool any = report.records + report.candidates + report.cubins > 0;
  if ((any || report.counts > 0) && !settings.dry_run && !settings.no_compact) file->compact();
  bytes.after = file->stats().file_bytes;
  globals.json ? print_json_pruned(settings, *file, report, chosen->records, bytes)
               : print_pruned(settings, *file, report, chosen->records, bytes);
  if (any && !settings.dry_run) say_unsigned(globals, file->path().string(), signatures);
  return exit_good;
}

struct CacheCompactSettings {
  std::string file;
};

void declare_compact(CLI::App& command, CacheCompactSettings& settings) {
  command.add_option("file", settings.file, "This file instead of the overlay")->type_name("FILE");
}

int run_compact(const Globals& globals, const CacheCompactSettings& settings) {
  const auto file = open_to_change(globals, settings.file);
  Compacted bytes{file->stats().file_bytes, 0};
  file->compact();
  bytes.after = file->stats().file_bytes;
  if (globals.json)
    print_json({{"event", "compacted"},
                {"file", file->path().string()},
                {"bytes_before", bytes.before},
                {"bytes", bytes.after}});
  else
    print(fmt::format("{}: {} before, {} now\n", file->path().string(), format_bytes(bytes.before),
                      format_bytes(bytes.after)));
  return exit_good;
}

}  // namespace

void add_cache_prune(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<CachePruneSettings>(
      cache, chosen, "prune", "Delete rows that are unused, stale, for other devices, or past a size", declare, run,
      takes_device | takes_overlay | takes_templates);
  command->footer(
      "A row is deleted when it meets every condition that is given. --max-size comes after them. It deletes counts of launches past\n"
      "a tenth of the size first; then candidates of records; then cubins, the fewest uses a byte first; then the other counts; then\n"
      "records, the least time saved a byte first. Rows that served often and lately stay longer. A size that cannot be reached is\n"
      "refused.\n"
      "--stale deletes a record if its op is loaded and its sources have changed, or the op no longer has the bucket,\n"
      "implementation or config. It deletes a cubin if its op is loaded and no implementation or reference of it has the\n"
      "cubin's sources. Rows without sources stay.\n"
      "--device-class and --other-devices delete a cubin when no remaining device class can run it.\n"
      "The first deletion removes the seal and its signatures.\n"
      "Examples:\n  kiln cache prune --unused 90d --dry-run\n  kiln cache prune --stale --op gemm\n"
      "  kiln cache prune --max-size 500MB");
}

void add_cache_compact(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<CacheCompactSettings>(
      cache, chosen, "compact", "Return free pages to the file system, and build the indexes anew", declare_compact,
      run_compact, takes_overlay);
  command->footer(
      "Rows and seal do not change. Needs as much free space as the file takes, and waits up to 5 seconds for other processes\n"
      "that use it.\nExample:\n  kiln cache compact        your overlay");
}

}  // namespace kiln::cli
