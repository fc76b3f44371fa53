// kiln cache export, import and merge.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/cache.hpp"
#include "cli/output.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

struct ExportSettings {
  std::string file, output, op, device_class;
  bool text = false, no_cubins = false, no_candidates = false, force = false;
};

void declare_export(CLI::App& command, ExportSettings& settings) {
  command.add_option("file", settings.file, "Export this file instead of the overlay")->type_name("FILE");
  command.add_flag("--text", settings.text,
                   "JSON lines that a diff can review, instead of a .kiln file; without cubins");
  command.add_option("-o,--output", settings.output, "Where to; text goes to the standard output unless this is given")
      ->type_name("FILE");
  command.add_option("--op", settings.op, "Only this op")->type_name("OP");
  command.add_option("--device-class", settings.device_class, "Only this device class")->type_name("CLASS");
  command.add_flag("--no-cubins", settings.no_cubins,
                   "Records alone: the machine code is compiled where they are used");
  command.add_flag("--no-candidates", settings.no_candidates, "Winners alone");
  command.add_flag("--force", settings.force, "Replace an output that exists");
}

void write_text(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  std::ofstream file(beside, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) fs::rename(beside, path, error);
  if (file && !error) return;
  fs::remove(beside, error);
  throw Error(ErrorKind::io, fmt::format("{} cannot be written; is its folder there, and yours?", path));
}

void say_exported(const Globals& globals, const std::string& output, const store::TransferReport& report) {
  if (globals.json)
    print_json({{"event", "exported"}, {"file", output}, {"records", report.added}, {"cubins", report.cubins}});
  else if (!globals.quiet)
    note(fmt::format("{} holds {} records and {} cubins, {}", output, format_count(report.added),
                     format_count(report.cubins), format_bytes(static_cast<std::int64_t>(fs::file_size(output)))));
}

int export_records(const Globals& globals, const ExportSettings& settings) {
  if (!settings.text && settings.output.empty())
    throw Error(ErrorKind::bad_input,
                "a .kiln file cannot go to the standard output: name it with -o, or ask for --text");
  if (!settings.output.empty() && fs::exists(settings.output) && !settings.force)
    throw Error(ErrorKind::bad_input,
                fmt::format("{} exists; give another name, or --force to replace it", settings.output));
  std::optional<store::Layers> layers;
  const auto files = files_to_show(globals, settings.file, layers);
  store::File& from = *files.front().file;  // the overlay comes first
  const store::Selection selection{settings.op, settings.device_class, !settings.no_cubins, !settings.no_candidates};
  if (!settings.text) {
    // The overlay is the user's own under any policy.
    const auto trust = settings.file.empty() ? store::CodeTrust{} : code_trust(globals);
    say_exported(globals, settings.output, store::export_file(from, settings.output, selection, settings.force, trust));
    return exit_good;
  }
  std::ostringstream text;
  store::export_text(from, text, selection);
  if (settings.output.empty())
    print(text.str());
  else
    write_text(settings.output, text.str());
  return exit_good;
}

struct ImportSettings {
  std::vector<std::string> files;
  std::string output;
};

void declare_import(CLI::App& command, ImportSettings& settings) {
  command.add_option("files", settings.files, "Files of records, .kiln or .jsonl")->required()->type_name("FILE");
}

void declare_merge(CLI::App& command, ImportSettings& settings) {
  declare_import(command, settings);
  command.add_option("-o,--output", settings.output, "The file that takes them all; what it holds already takes part")
      ->required()
      ->type_name("FILE");
}

store::TransferReport bring(const std::string& path, store::File& to, const store::CodeTrust& trust) {
  if (!fs::exists(path)) throw Error(ErrorKind::bad_input, fmt::format("the file {} does not exist", path));
  if (!is_text(path)) return store::merge_into(*store::File::open(path, store::Access::read_only), to, trust);
  std::ifstream text(path);
  if (!text) throw Error(ErrorKind::io, fmt::format("{} cannot be read", path));
  return store::import_text(text, path, to);
}

int bring_all(const Globals& globals, const std::vector<std::string>& files, store::File& to) {
  const store::CodeTrust trust = code_trust(globals);
  for (const std::string& path : files) {
    const store::TransferReport report = bring(path, to, trust);
    if (globals.json) {
      print_json({{"event", "imported"},
                  {"file", path},
                  {"added", report.added},
                  {"replaced", report.replaced},
                  {"kept", report.kept},
                  {"cubins", report.cubins},
                  {"untrusted_cubins", report.untrusted_cubins}});
      continue;
    }
    print(fmt::format("{}: {} records added, {} replaced, {} kept as they were, {} cubins\n", path,
                      format_count(report.added), format_count(report.replaced), format_count(report.kept),
                      format_count(report.cubins)));
    if (report.untrusted_cubins > 0 && !globals.quiet)
      note(fmt::format(
          "{} cubins of {} were left behind, since the trust policy does not let that file supply machine code; they are compiled when they are needed",
          report.untrusted_cubins, path));
  }
  return exit_good;
}

int import_records(const Globals& globals, const ImportSettings& settings) {
  store::Layers layers = open_layers(globals);
  return bring_all(globals, settings.files, layers.overlay());
}

int merge(const Globals& globals, const ImportSettings& settings) {
  return bring_all(globals, settings.files, *store::File::open(settings.output, store::Access::read_write));
}

}  // namespace

void add_cache_transfer(CLI::App& cache, Chosen& chosen) {
  add_command<ExportSettings>(cache, chosen, "export",
                              "Write the overlay, or a part of it, as a file to ship or as text to review",
                              declare_export, export_records);
  add_command<ImportSettings>(cache, chosen, "import",
                              "Take records into the overlay; of two for one key the better founded stays",
                              declare_import, import_records);
  add_command<ImportSettings>(cache, chosen, "merge", "Put several files into one", declare_merge, merge);
}

}  // namespace kiln::cli
