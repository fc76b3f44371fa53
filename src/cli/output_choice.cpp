#include "cli/output_choice.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/text_digest.hpp"
#include "kiln/error.hpp"
#include "manifest/shortage.hpp"
#include "store/custody.hpp"
#include "store/output_file.hpp"
#include "store/replaced_file.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

bool is_stream(const std::string& path) {
  struct stat status {};
  if (path.empty() || path == "-" || is_standard_output(path)) return true;
  return ::stat(path.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
}

/// Returns the first `most` bytes of a file.
std::string beginning_of(const fs::path& path, std::size_t most = 1024) {
  std::string text(most, '\0');
  std::ifstream file(path, std::ios::binary);
  if (file.is_open()) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw Error(ErrorKind::io, fmt::format("'{}' cannot be read: {}", path.string(), manifest::refusal_text(errno)));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

void require_page(const fs::path& target) {
  const std::string text = beginning_of(target);
  if (!text.empty() &&
      (!text.starts_with("<!DOCTYPE html>") || text.find("<title>Kiln report</title>") == std::string::npos))
    store::refuse_to_replace(target, "is no page of kiln report");
}

/// For a file that begins as what `writer` writes: its digest must be of its content.
void require_unchanged(const fs::path& target, std::string_view writer) {
  switch (authorship_of(beginning_of(target, fs::file_size(target)))) {
    case Authorship::whole: return;
    case Authorship::changed:
      store::refuse_to_replace(target, fmt::format("was changed after {} had written it", writer));
    case Authorship::no_digest:
      store::refuse_to_replace(
          target, fmt::format("has no digest of {} in its first line, so that it may have been changed", writer));
  }
}

void require_trace(const fs::path& target) {
  const std::string text = beginning_of(target);
  if (text.empty()) return;
  const std::string first = text.substr(0, text.find('\n'));
  if (!first.starts_with("# ") || first.find(" distinct problems, ") == std::string::npos)
    store::refuse_to_replace(target, "is no trace that kiln trace drew");
  require_unchanged(target, "kiln trace");
}

void require_workload(const fs::path& target) {
  const std::string text = beginning_of(target);
  if (text.empty()) return;
  if (!text.starts_with("# Written by kiln workload"))
    store::refuse_to_replace(target, "is no workload that kiln workload wrote");
  require_unchanged(target, "kiln workload");
}

/// A line of samples begins with its op, bucket and key; one of records with its key.
bool are_samples(const std::string& text) {
  return text.starts_with("{\"op\":\"") && text.find("\"bucket\":\"") < text.find("\"key\":\"");
}

std::set<std::string> keys_in(std::string_view text, const std::string& name) {
  std::istringstream lines{std::string(text)};
  const auto file = store::File::in_memory();
  store::import_text(lines, name, *file);
  std::set<std::string> keys;
  for (store::Record& record : file->records()) keys.insert(std::move(record.key));
  return keys;
}

}  // namespace

CLI::Option* declare_output(CLI::App& command, OutputChoice& output, const std::string& summary,
                            const std::string& type_name) {
  CLI::Option* option = command.add_option("-o,--output", output.path, summary)->check(output_name());
  command
      .add_flag(
          "--replace", output.replace,
          "Replace an output that exists, whatever it is. Without it, only the same kind of file is replaced: one of "
          "records when none of them is lost, a trace or a workload when nobody has changed it")
      ->needs(option);
  return option->type_name(type_name);
}

void check_output(const OutputChoice& output, OutputKind kind) {
  const bool is_file = kind == OutputKind::records;
  if (output.path.empty() || (!is_file && is_stream(output.path))) return;
  const fs::path target = store::literal_path(output.path);
  store::check_target(target, store::Existing::replace);
  std::error_code ignored;
  if (output.replace) return;
  if (!fs::exists(target, ignored)) {
    if (is_file || target.extension() != ".kiln") return;
    throw Error(ErrorKind::bad_input,
                fmt::format("the output is text, and the name {} ends in .kiln; choose another name", output.path));
  }
  switch (kind) {
    case OutputKind::records: store::replaced_keys(target, store::RecordFormat::sealed); break;
    case OutputKind::text_of_records: store::replaced_keys(target, store::RecordFormat::text); break;
    case OutputKind::page: require_page(target); break;
    case OutputKind::trace: require_trace(target); break;
    case OutputKind::workload: require_workload(target); break;
  }
}

void check_samples(const std::string& path) {
  if (path.empty() || is_stream(path)) return;
  const fs::path target = store::literal_path(path);
  std::error_code ignored;
  const bool has_other_name = target.extension() == ".kiln";
  const std::string text = fs::is_regular_file(target, ignored) ? beginning_of(target) : std::string();
  if (!has_other_name && (text.empty() || are_samples(text))) return;
  throw Error(ErrorKind::bad_input,
              fmt::format("--samples appends text to {}, which {}; name a new file, or one that --samples wrote", path,
                          has_other_name ? "has the name of a file of records" : "exists and holds something else"));
}

void write_text(const OutputChoice& output, OutputKind kind, std::string_view text) {
  check_output(output, kind);
  if (is_stream(output.path)) return write_text(output.path, text);
  const fs::path target = store::literal_path(output.path);
  const store::HeldTarget held(target, store::RecordFormat::text);
  std::error_code ignored;
  if (kind == OutputKind::text_of_records && !output.replace && fs::exists(target, ignored))
    store::require_nothing_lost(target, store::RecordFormat::text, keys_in(text, output.path));
  const bool has_digest = kind == OutputKind::trace || kind == OutputKind::workload;
  write_text(output.path, has_digest ? with_digest(text) : text);
}

void say_written(bool json, const OutputChoice& output, std::string_view what, const Json& counts) {
  if (is_stream(output.path)) return;
  if (!json) return print(fmt::format("{}: {}\n", output.path, what));
  Json written{{"event", "written"}, {"file", output.path}};
  written.update(counts);
  print_json(written);
}

}  // namespace kiln::cli
