// kiln cache export: writes the overlay, or a part of it, as a file to ship or as text to review.
#include <fmt/format.h>

#include <sstream>

#include "cli/cache.hpp"
#include "cli/output.hpp"
#include "cli/output_choice.hpp"
#include "cli/signatures.hpp"
#include "cli/units.hpp"
#include "cli/workload_selection.hpp"
#include "kiln/error.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

struct CacheExportSettings {
  std::string file, op, device_class;
  OutputChoice output;
  std::vector<std::string> workloads;
  bool text = false, no_cubins = false, no_candidates = false;
};

void declare(CLI::App& command, CacheExportSettings& settings) {
  command.add_option("file", settings.file, "Export this file instead of the overlay")->type_name("FILE");
  command.add_flag("--text", settings.text, "Write JSON lines for review, without cubins, instead of a .kiln file");
  declare_output(command, settings.output, "The file to write. Without it, or with -, text goes to the standard output",
                 "FILE");
  command.add_option("--op", settings.op, "Only this op")->type_name("OP");
  add_device_class(command, settings.device_class, "Only this device class");
  command
      .add_option(
          "--workload", settings.workloads,
          "Only the records of this workload's buckets, and the machine code that they and the ops' defaults need; repeatable")
      ->allow_extra_args(false)
      ->type_name("WORKLOAD.toml");
  command.add_flag("--no-cubins", settings.no_cubins,
                   "Leave out machine code; it is then compiled where the records are used");
  command.add_flag("--no-candidates", settings.no_candidates, "Leave out the timings of candidates");
}

void check(const CacheExportSettings& settings) {
  const std::string& output = settings.output.path;
  if (!settings.text && output.empty())
    throw Error(ErrorKind::bad_input,
                "a .kiln file cannot go to the standard output: name it with -o, or ask for --text");
  if (!settings.text && fs::path(output).extension() != ".kiln")
    throw Error(
        ErrorKind::bad_input,
        fmt::format("the output {} is a .kiln file, so its name ends in .kiln; --text makes text of it", output));
  check_output(settings.output, settings.text ? OutputKind::text_of_records : OutputKind::records);
}

void say_exported(const Globals& globals, const CacheExportSettings& settings, const store::TransferReport& report,
                  std::int64_t flawed_rows, std::int64_t lost_cubins) {
  const std::string& output = settings.output.path;
  if (globals.json) {
    print_json({{"event", "exported"},
                {"file", output},
                {"records", report.added},
                {"cubins", report.cubins},
                {"untrusted_cubins", report.untrusted_cubins},
                {"lost_cubins", lost_cubins},
                {"flawed_rows", flawed_rows}});
    return;
  }
  print(fmt::format("{}: {} and {}, {}\n", output, counted(report.added, "record"), counted(report.cubins, "cubin"),
                    format_bytes(static_cast<std::int64_t>(fs::file_size(output)))));
  say_left_behind(globals, settings.file, report.untrusted_cubins);
}

void export_text(const Globals& globals, store::File& from, const CacheExportSettings& settings,
                 const store::Selection& selection) {
  std::ostringstream text;
  store::export_text(from, text, selection);
  if (settings.output.path.empty()) return print(text.str());
  write_text(settings.output, OutputKind::text_of_records, text.str());
  const std::size_t bytes = text.str().size();
  say_written(globals.json, settings.output, format_bytes(static_cast<std::int64_t>(bytes)), {{"bytes", bytes}});
}

/// Throws Error(bad_input) where the output is one of the files that are read.
void check_is_no_input(const std::string& output, const std::vector<NamedFile>& files) {
  std::error_code ignored;
  for (const NamedFile& each : files)
    if (!output.empty() && fs::equivalent(each.file->path(), output, ignored))
      throw Error(ErrorKind::bad_input,
                  fmt::format("the output {} is also read by this command; choose another name", output));
}

int run(const Globals& globals, const CacheExportSettings& settings) {
  check(settings);
  std::optional<store::Layers> layers;
  const auto files = files_to_show(globals, settings.file, layers);
  check_is_no_input(settings.output.path, files);
  if (layers && !layers->readable_overlay().refused.empty())
    throw Error(ErrorKind::io, fmt::format("nothing is exported: {}", layers->readable_overlay().refused));
  if (files.front().file->path().empty() && settings.file.empty())
    throw Error(
        ErrorKind::bad_input,
        "nothing is exported: the overlay is in memory, as its empty path asks, and holds no record; name a file");
  check_op(globals, files, settings.op);
  store::File& from = *files.front().file;  // the overlay is the first
  store::Selection selection{settings.op, settings.device_class, !settings.no_cubins, !settings.no_candidates};
  selection.must_hold_records = true;
  selection.must_lose_nothing = !settings.output.replace;
  WorkloadCoverage coverage;
  if (!settings.workloads.empty()) {
    const manifest::Catalogue ops = load_ops(globals);
    coverage = select_workload(from, read_workloads(settings.workloads, ops), selection);
  }
  // Counts only the flawed rows of this export. A file that was named is read for the first time here.
  const std::int64_t met_before = settings.file.empty() ? 0 : from.counters().quarantined;
  const auto flawed_rows = [&] { return from.counters().quarantined - met_before; };
  if (settings.text) {
    export_text(globals, from, settings, selection);
  } else {
    // The user's own overlay is trusted under any policy.
    const auto trust = settings.file.empty() ? store::CodeTrust{} : code_trust(globals);
    const std::size_t signatures = signatures_of(settings.output.path) + signatures_of(settings.file);
    const FormerCode former(settings.output.path);
    const auto report = store::export_file(from, settings.output.path, selection, true, trust);
    say_exported(globals, settings, report, flawed_rows(), former.say_lost(globals));
    say_unsigned(globals, settings.output.path, signatures);
  }
  if (!globals.json) say_flawed(globals, files.front().name, flawed_rows());
  if (coverage.missing == 0) return exit_good;
  say_error(
      globals.json, "unmet",
      fmt::format("{} of {} of {} {} no record in {}", coverage.missing, counted(coverage.buckets, "bucket"),
                  fmt::join(settings.workloads, ", "), verb(coverage.missing, "has", "have"), files.front().name));
  return exit_wrong;
}

}  // namespace

void add_cache_export(CLI::App& cache, Chosen& chosen) {
  CLI::App* command = add_command<CacheExportSettings>(
      cache, chosen, "export", "Write the overlay, or a part of it, as a file to ship or as text to review", declare,
      run, takes_overlay | takes_trust | takes_keys | takes_templates);
  command->footer(
      "Equal content gives equal bytes, in whatever order it was tuned. The file is sealed: verify detects rows that are lost or\n"
      "changed later.\n"
      "Examples:\n  kiln cache export --text --op rms_norm -o rms_norm.jsonl\n"
      "  kiln cache export --workload llama3_8b.toml -o llama3_8b.kiln\n"
      "Exit status 1: some buckets of the workload have no record.");
}

}  // namespace kiln::cli
