// Finds and reads ops: from folders on disk and from the library.
#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/embedded.hpp"
#include "manifest/environment.hpp"
#include "manifest/includes.hpp"
#include "manifest/limits.hpp"
#include "manifest/shortage.hpp"
#include "manifest/text.hpp"
#include "manifest/text_file.hpp"

namespace kiln::manifest {
namespace {

namespace fs = std::filesystem;

/// Removes a byte order mark.
std::string read_template(const fs::path& path) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  std::string text = read_text_file(path, path.extension() == ".toml" ? max_toml_bytes : max_source_bytes);
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    paths.push_back(each->path());
  if (error) {
    throw Error(ErrorKind::io,
                fmt::format("cannot list the template folder '{}': {}", folder.string(), error.message()));
  }
  std::ranges::sort(paths);
  return paths;
}

// A folder that cannot be read is not an op folder; listing its parent reports the reason when the user named it.
bool is_op_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / op_file, ignored);
}

fs::path without_final_slash(const fs::path& folder) { return folder.has_filename() ? folder : folder.parent_path(); }

struct LoadedOps {
  std::vector<Op> ops;
  std::vector<RefusedOp> refused;

  void add(const fs::path& folder) {
    const std::string name = without_final_slash(folder).filename().string();
    const bool is_hidden = std::ranges::find(ops, name, &Op::name) != ops.end() ||
                           std::ranges::find(refused, name, &RefusedOp::name) != refused.end();
    if (is_hidden) return;
    try {
      ops.push_back(load_op(folder));
    } catch (const Error& error) {
      if (descriptor_shortage() != 0) throw;  // it passes, and the op is sound
      refused.push_back({name, error.what()});
    }
  }
  // `folder` holds op folders, or is one.
  void add_all(const fs::path& folder) {
    if (is_op_folder(folder)) return add(folder);
    for (const fs::path& each : entries_of(folder)) {
      if (is_op_folder(each)) add(each);
    }
  }
};

// Refuses links, through which a template could show any file of the machine in the compiler's messages, and pipes,
// which may block.
void check_own_file(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    throw Error(ErrorKind::bad_manifest, fmt::format("{}:1: found {}, expected a regular file", path.string(),
                                                     error ? error.message() : "something that is no file"));
  if (fs::canonical(path, error).parent_path() == fs::canonical(folder, error)) return;
  throw Error(ErrorKind::bad_manifest,
              fmt::format("{}:1: found a link that leaves the op's folder, expected a file of its own", path.string()));
}

std::vector<fs::path> manifests_and_sources(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const fs::path& path : entries_of(folder))
    if (path.extension() == ".toml" || path.extension() == ".cuh") paths.push_back(path);
  return paths;
}

SourceFile read_own_file(const fs::path& path, const fs::path& folder) {
  check_own_file(path, folder);
  return {path.filename().string(), read_template(path)};
}

std::vector<SourceFile> embedded_in(std::string_view folder) {
  std::vector<SourceFile> files;
  for (const EmbeddedFile& file : embedded_files()) {
    const std::size_t slash = file.path.find('/');
    if (file.path.substr(0, slash) == folder)
      files.push_back({std::string(file.path.substr(slash + 1)), SourceText::of_static(file.text)});
  }
  return files;
}

std::vector<SourceFile> common_files(std::string_view suffix) {
  std::vector<SourceFile> files;
  for (const SourceFile& file : embedded_in("common"))
    if (file.name.ends_with(suffix)) files.push_back({"common/" + file.name, file.text});
  return files;
}

}  // namespace

std::vector<fs::path> template_paths_of_environment() {
  const std::string variable = environment("KILN_TEMPLATE_PATH");
  std::vector<fs::path> paths;
  for (std::string_view rest = variable; !rest.empty();) {
    const std::string_view path = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), path.size() + 1));
    if (!path.empty()) paths.emplace_back(path);
  }
  return paths;
}

std::vector<std::string_view> built_in_names() {
  std::vector<std::string_view> names;
  for (const EmbeddedFile& file : embedded_files()) {
    const std::size_t slash = file.path.find('/');
    if (slash != std::string_view::npos && file.path.substr(slash + 1) == op_file)
      names.push_back(file.path.substr(0, slash));
  }
  return names;
}

Op load_op(const fs::path& folder) {
  const fs::path clean = without_final_slash(folder);
  std::vector<SourceFile> files;
  for (const fs::path& path : manifests_and_sources(clean)) files.push_back(read_own_file(path, clean));
  return parse_op(clean.filename().string(), clean.string(), files);
}

Op load_op(const fs::path& folder, std::vector<Mistake>& mistakes) {
  const fs::path clean = without_final_slash(folder);
  std::vector<SourceFile> files;
  for (const fs::path& path : manifests_and_sources(clean)) {
    try {
      files.push_back(read_own_file(path, clean));
    } catch (const Error& error) {
      mistakes.push_back(mistake_of(error, path.string()));
      files.push_back({path.filename().string(), std::string()});
    }
  }
  return parse_op(clean.filename().string(), clean.string(), files, mistakes);
}

std::vector<Op> load_ops(std::span<const fs::path> paths) {
  const Catalogue catalogue(paths);
  if (!catalogue.refused().empty()) refuse(catalogue.refused().front());
  const std::span<const Op> all = catalogue.all();
  return {all.begin(), all.end()};
}

Catalogue::Catalogue(std::span<const fs::path> paths) {
  LoadedOps own;
  for (const fs::path& path : paths) own.add_all(path);
  for (const fs::path& path : template_paths_of_environment()) own.add_all(path);
  ops_ = std::move(own.ops);
  refused_ = std::move(own.refused);
  first_built_in_ = ops_.size();
  for (const Op& op : ops_) names_.push_back(op.name);
  for (const std::string_view name : built_in_names())
    if (!find(name) && std::ranges::find(refused_, name, &RefusedOp::name) == refused_.end()) names_.emplace_back(name);
  ops_.resize(names_.size());
  read_ = std::vector<std::once_flag>(names_.size() - first_built_in_);
}

Catalogue::Catalogue(Given /*given*/, std::vector<Op> ops) : ops_(std::move(ops)), first_built_in_(ops_.size()) {
  for (const Op& op : ops_) names_.push_back(op.name);
}

Catalogue Catalogue::of(std::vector<Op> ops) { return {Given(), std::move(ops)}; }

const Op& Catalogue::operator[](std::size_t index) const {
  const auto read = [&] { ops_[index] = parse_op(names_[index], "built-in", embedded_in(names_[index])); };
  if (index >= first_built_in_) std::call_once(read_[index - first_built_in_], read);
  return ops_[index];
}

std::optional<std::size_t> Catalogue::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names_.begin());
}

const Op* Catalogue::op(std::string_view name) const {
  const auto found = find(name);
  return found ? &(*this)[*found] : nullptr;
}

std::size_t Catalogue::index_of(std::string_view name) const {
  if (const auto found = find(name)) return *found;
  const auto refused = std::ranges::find(refused_, name, &RefusedOp::name);
  if (refused != refused_.end()) refuse(*refused);
  throw Error(ErrorKind::bad_input,
              fmt::format("there is no op {}; there are: {}", quote(name), fmt::join(names_, ", ")));
}

void refuse(const RefusedOp& op) {
  throw Error(ErrorKind::bad_manifest, fmt::format("the op {} is refused: {}", quote(op.name), op.why));
}

std::span<const Op> Catalogue::all() const {
  for (std::size_t i = 0; i < ops_.size(); ++i) static_cast<void>((*this)[i]);
  return ops_;
}

std::span<const SourceFile> common_headers() {
  static const auto& headers = *new std::vector<SourceFile>(common_files(".cuh"));
  return headers;
}

std::span<const SourceFile> common_parts() {
  static const auto& parts = *new std::vector<SourceFile>(common_files(part_suffix));
  return parts;
}

}  // namespace kiln::manifest
