// Finds the ops of a folder, and folders that were meant to be ops.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "check/check.hpp"
#include "kiln/error.hpp"
#include "manifest/includes.hpp"
#include "manifest/text.hpp"

namespace kiln::check {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    entries.push_back(each->path());
  if (error)
    throw Error(ErrorKind::io, fmt::format("cannot list the folder '{}': {}", folder.string(), error.message()));
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool has_op_file(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / manifest::op_file, ignored);
}

/// Whether the folder holds files as an op's does. A folder of headers alone may be for anything.
bool looks_like_op(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return false;
  bool has_manifest = false, has_source = false;
  for (fs::directory_iterator each(folder, ignored), end; !ignored && each != end; each.increment(ignored)) {
    has_manifest = has_manifest || (each->path().extension() == ".toml" && !manifest::is_part(each->path().string()));
    has_source = has_source || each->path().extension() == ".cuh";
  }
  return has_manifest && has_source;
}

/// The name of a manifest in the folder that begins as op.toml does, or nothing.
std::string misnamed_op_file(const fs::path& folder) {
  for (const fs::path& each : sorted_entries(folder)) {
    if (each.extension() != ".toml") continue;
    std::ifstream text(each);
    for (std::string line; std::getline(text, line);)
      if (line.starts_with("[op]")) return each.filename().string();
  }
  return {};
}

std::string name_of(const fs::path& folder) {
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

}  // namespace

std::vector<ReadOp> read_ops(const fs::path& folder, std::span<const KnownOp> known, Findings& findings) {
  std::vector<ReadOp> ops;
  const auto read = [&](const fs::path& at) {
    const std::string file = (at / manifest::op_file).string();
    const auto other =
        std::find_if(known.begin(), known.end(), [&](const KnownOp& each) { return each.name == name_of(at); });
    if (other != known.end())
      findings.add({Severity::warning,
                    "name",
                    file,
                    1,
                    fmt::format("the op {} has the name of another, {}, and the first that is found hides the other",
                                manifest::quote(name_of(at)), other->folder),
                    "rename a folder unless one is meant to replace the other",
                    {}});
    ReadOp& op = ops.emplace_back();
    op.op = manifest::load_op(at, op.mistakes);
  };
  if (has_op_file(folder)) {
    read(folder);
    return ops;
  }
  const std::vector<fs::path> entries = sorted_entries(folder);
  const auto add_nameless = [&](const fs::path& at) {
    const std::string misnamed = misnamed_op_file(at);
    findings.add({Severity::error,
                  "no_op_toml",
                  at.string(),
                  1,
                  "manifests and sources without op.toml",
                  misnamed.empty()
                      ? fmt::format("write {}, as kiln new does, or move the files", (at / manifest::op_file).string())
                      : fmt::format("rename {}, which has [op], to {}", misnamed, manifest::op_file),
                  {}});
  };
  for (const fs::path& each : entries) {
    if (has_op_file(each))
      read(each);
    else if (looks_like_op(each))
      add_nameless(each);
  }
  if (ops.empty() && looks_like_op(folder)) add_nameless(folder);
  if (ops.empty() && findings.count(Severity::error) == 0)
    throw Error(
        ErrorKind::bad_input,
        fmt::format("there is no op in '{}': neither it nor a folder in it holds op.toml; kiln new OP {} writes one",
                    folder.string(), folder.string()));
  return ops;
}

}  // namespace kiln::check
