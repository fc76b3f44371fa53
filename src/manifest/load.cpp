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

/// `whence`: empty, or the variable that names the folder.
std::vector<fs::path> entries_of(const fs::path& folder, std::string_view whence = {}) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    paths.push_back(each->path());
  if (error) {
    throw Error(ErrorKind::io, fmt::format("cannot list the template folder '{}'{}{}: {}; name a folder that holds "
                                           "the folders of ops, or is one",
                                           folder.string(), whence.empty() ? "" : " of ", whence, error.message()));
  }
  std::ranges::sort(paths);
  return paths;
}

bool is_op_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / op_file, ignored);
}

/// Whether what the folder holds is kept from this user.
bool is_closed(const fs::path& folder) {
  std::error_code error;
  return !fs::exists(folder / op_file, error) && error == std::errc::permission_denied;
}

/// Editors, file systems and version control keep such files and folders beside a user's own: .#scale.toml,
/// ._scale.toml, .git.
bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

fs::path without_final_slash(const fs::path& folder) { return folder.has_filename() ? folder : folder.parent_path(); }

struct LoadedOps {
  std::vector<Op> ops;
  std::vector<RefusedOp> refused;

  [[nodiscard]] bool has(const std::string& name) const {
    return std::ranges::find(ops, name, &Op::name) != ops.end() ||
           std::ranges::find(refused, name, &RefusedOp::name) != refused.end();
  }
  void add(const fs::path& folder) {
    const std::string name = without_final_slash(folder).filename().string();
    if (has(name)) return;
    try {
      ops.push_back(load_op(folder));
    } catch (const Error& error) {
      if (descriptor_shortage() != 0) throw;  // it passes, and the op is sound
      refused.push_back({name, error.what()});
    }
  }
  // It may be an op, which another folder must not stand in for unnoticed.
  void add_closed(const fs::path& folder) {
    const std::string name = folder.filename().string();
    if (is_identifier(name) && !has(name))
      refused.push_back({name, fmt::format("'{}' cannot be read: Permission denied, expected a folder that this user "
                                           "may list and read",
                                           folder.string())});
  }
  // `folder` holds op folders, or is one.
  void add_all(const fs::path& folder, std::string_view whence = {}) {
    if (is_op_folder(folder)) return add(folder);
    for (const fs::path& each : entries_of(folder, whence)) {
      if (is_hidden(each)) continue;
      if (is_op_folder(each))
        add(each);
      else if (is_closed(each))
        add_closed(each);
    }
  }
};

// Refuses links, through which a template could show any file of the machine in the compiler's messages, and pipes,
// which may block.
void check_own_file(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    std::string found = error ? error.message() : "something that is no file";
    if (error == std::errc::no_such_file_or_directory) found = "a link to a file that is not there";
    throw Error(ErrorKind::bad_manifest,
                fmt::format("{}:1: found {}, expected a regular file: replace or remove it", path.string(), found));
  }
  if (fs::canonical(path, error).parent_path() == fs::canonical(folder, error)) return;
  throw Error(ErrorKind::bad_manifest,
              fmt::format("{}:1: found a link that leaves the op's folder, expected a file of its own", path.string()));
}

std::vector<fs::path> manifests_and_sources(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const fs::path& path : entries_of(folder))
    if (!is_hidden(path) && (path.extension() == ".toml" || path.extension() == ".cuh")) paths.push_back(path);
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
  std::vector<std::string> unread;
  for (const fs::path& path : manifests_and_sources(clean)) {
    try {
      files.push_back(read_own_file(path, clean));
    } catch (const Error& error) {
      mistakes.push_back(mistake_of(error, path.string()));
      unread.push_back(path.string());
      files.push_back({path.filename().string(), std::string()});
    }
  }
  std::vector<Mistake> of_texts;
  Op op = parse_op(clean.filename().string(), clean.string(), files, of_texts);
  // What the empty stand-in of a file lacks says nothing of the file.
  std::ranges::copy_if(of_texts, std::back_inserter(mistakes),
                       [&](const Mistake& each) { return std::ranges::find(unread, each.file) == unread.end(); });
  return op;
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
  for (const fs::path& path : template_paths_of_environment()) own.add_all(path, "KILN_TEMPLATE_PATH");
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
              fmt::format("there is no op {}{}; an op of your own is in the template paths of the options or in "
                          "KILN_TEMPLATE_PATH; there are: {}",
                          quote(name), did_you_mean(name, names_), fmt::join(names_, ", ")));
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
