// kiln cache import and kiln cache merge: put the records of several files into one.
#include <fmt/format.h>

#include "cli/cache.hpp"
#include "cli/kept.hpp"
#include "cli/output.hpp"
#include "cli/output_choice.hpp"
#include "cli/signatures.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* rule =
    "Of two records with one key, the one with more samples stays. Ties go to the smaller 95 % interval relative to the cost, then\n"
    "to the smaller digest, then to more candidates, then to the smaller hash of the candidates. Of two cubins, the one with the\n"
    "smaller digest stays. So the result depends neither on the order of the files nor on repetition. Every row is checked first:\n"
    "rows that do not hold are not copied, nor is machine code that the trust policy does not allow. A record keeps its\n"
    "provenance.\n";

struct CacheMergeSettings {
  std::vector<std::string> files;
  OutputChoice output;
};

void declare_import(CLI::App& command, CacheMergeSettings& settings) {
  command.add_option("files", settings.files, "Files of records, .kiln or .jsonl")->required()->type_name("FILE");
}

void declare_merge(CLI::App& command, CacheMergeSettings& settings) {
  declare_import(command, settings);
  declare_output(
      command, settings.output,
      "The sealed .kiln file to write, which may be one of the inputs. Without it, records go into the overlay",
      "FILE");
}

struct Brought {
  store::TransferReport report;
  std::int64_t flawed_rows = 0;
};

/// Throws for a file that cannot be read before any is imported.
std::vector<std::unique_ptr<store::File>> open_all(const std::vector<std::string>& paths) {
  std::vector<std::unique_ptr<store::File>> files;
  for (const std::string& path : paths) {
    files.push_back(open_records(path));
    files.back()->refuse_if_damaged("copied");
  }
  return files;
}

Brought bring(store::File& from, store::File& to, const store::CodeTrust& trust) {
  const store::TransferReport report = store::merge_into(from, to, trust);
  return {report, from.counters().quarantined};
}

int into_overlay(const Globals& globals, const CacheMergeSettings& settings) {
  store::Layers layers = open_layers(globals);
  require_kept(layers, "what is imported");
  const store::CodeTrust trust = code_trust(globals);
  const auto files = open_all(settings.files);
  std::int64_t added = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string& path = settings.files[i];
    const auto& [report, flawed_rows] = bring(*files[i], layers.overlay(), trust);
    added += report.added;
    if (globals.json) {
      print_json({{"event", "imported"},
                  {"file", path},
                  {"added", report.added},
                  {"replaced", report.replaced},
                  {"kept", report.kept},
                  {"cubins", report.cubins},
                  {"untrusted_cubins", report.untrusted_cubins},
                  {"flawed_rows", flawed_rows}});
      continue;
    }
    print(fmt::format("{}: {} added, {} replaced, {} kept, {}\n", path, counted(report.added, "record"),
                      format_count(report.replaced), format_count(report.kept), counted(report.cubins, "cubin")));
    say_left_behind(globals, path, report.untrusted_cubins);
    say_flawed(globals, path, flawed_rows);
  }
  require_kept(layers, "what was imported");
  if (layers.overlay().stats().records < added) refuse_unkept("what was imported", {});
  return exit_good;
}

void check(const CacheMergeSettings& settings) {
  const std::string& output = settings.output.path;
  if (fs::path(output).extension() != ".kiln")
    throw Error(ErrorKind::bad_input,
                fmt::format("the output {} is a .kiln file, so its name ends in .kiln; kiln cache "
                            "export --text makes text of it",
                            output));
  check_output(settings.output, OutputKind::records);
}

int into_file(const Globals& globals, const CacheMergeSettings& settings) {
  check(settings);
  const std::string& output = settings.output.path;
  std::vector<std::unique_ptr<store::File>> files;
  std::vector<store::File*> inputs;
  std::size_t signatures = signatures_of(output);
  for (const std::string& path : settings.files) {
    files.push_back(open_records(path));
    if (path != output) signatures += signatures_of(path);
    inputs.push_back(files.back().get());
  }
  const store::Selection selection{.must_hold_records = true, .must_lose_nothing = !settings.output.replace};
  const FormerCode former(output);
  const auto report = store::merge_files(inputs, output, selection, true, code_trust(globals));
  std::int64_t flawed_rows = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::int64_t flawed = files[i]->counters().quarantined;
    if (!globals.json) say_flawed(globals, settings.files[i], flawed);
    flawed_rows += flawed;
  }
  say_unsigned(globals, output, signatures);
  const std::int64_t lost_cubins = former.say_lost(globals);
  const auto bytes = static_cast<std::int64_t>(fs::file_size(output));
  if (globals.json) {
    print_json({{"event", "merged"},
                {"file", output},
                {"inputs", settings.files},
                {"records", report.added},
                {"conflicts", report.conflicts},
                {"cubins", report.cubins},
                {"untrusted_cubins", report.untrusted_cubins},
                {"lost_cubins", lost_cubins},
                {"flawed_rows", flawed_rows},
                {"bytes", bytes}});
    return exit_good;
  }
  print(fmt::format("{}: {}, {} of which the files had different versions, {}, {}\n", output,
                    counted(report.added, "record"), format_count(report.conflicts), counted(report.cubins, "cubin"),
                    format_bytes(bytes)));
  say_left_behind(globals, "these files", report.untrusted_cubins);
  return exit_good;
}

int merge(const Globals& globals, const CacheMergeSettings& settings) {
  return settings.output.path.empty() ? into_overlay(globals, settings) : into_file(globals, settings);
}

}  // namespace

void add_cache_merge(CLI::App& cache, Chosen& chosen) {
  CLI::App* import = add_command<CacheMergeSettings>(
      cache, chosen, "import", "Copy records into the overlay; of two with one key, the better measured one stays",
      declare_import, into_overlay, takes_overlay | takes_trust | takes_keys);
  import->footer(rule);
  CLI::App* command = add_command<CacheMergeSettings>(
      cache, chosen, "merge",
      "Merge several files into one; of two records with one key, the better measured one stays", declare_merge, merge,
      takes_overlay | takes_trust | takes_keys);
  command->footer(std::string(rule) +
                  "Examples:\n  kiln cache merge node0.kiln node1.kiln reviewed.jsonl -o fleet.kiln\n"
                  "  kiln cache merge colleague.kiln                   into your overlay");
}

}  // namespace kiln::cli
