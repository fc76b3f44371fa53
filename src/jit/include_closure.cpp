#include "jit/include_closure.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "cuda/search_path.hpp"
#include "jit/include_scan.hpp"
#include "jit/source_meaning.hpp"
#include "kiln/error.hpp"
#include "manifest/shortage.hpp"
#include "manifest/text.hpp"

namespace kiln::jit {
namespace {

using std::filesystem::path;

const manifest::SourceFile* find_in(std::span<const manifest::SourceFile> files, const std::string& name) {
  for (const manifest::SourceFile& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::optional<std::string> read_text(const path& file) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(file, failure)) return std::nullopt;
  std::ifstream stream(file, std::ios::binary);
  if (!stream && manifest::is_shortage(errno))
    throw Error(ErrorKind::io,
                "the toolkit header " + file.string() + " cannot be read: " + manifest::refusal_text(errno));
  if (!stream) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

/// What the files of a closure define, as far as it lets more than tokens reach the machine code.
struct Definitions {
  std::vector<Macro> given, toolkit;
  bool toolkit_names_callers_place = false;
};

/// Returns Closure::meaning. An include of a given file is its place in the walk. Names of given files enter only
/// beside toolkit headers, which might include them or ask for them.
std::optional<manifest::Digest> meaning_of(const Closure& closure, const Definitions& definitions) {
  const auto any_macro = [&](bool Macro::*has) {
    return std::any_of(definitions.given.begin(), definitions.given.end(),
                       [has](const Macro& each) { return each.*has; });
  };
  const bool has_toolkit = !closure.toolkit.empty();
  if (definitions.toolkit_names_callers_place || any_macro(&Macro::may_form_place)) return std::nullopt;
  if (has_toolkit && any_macro(&Macro::pastes)) return std::nullopt;  // it may form the name of a toolkit's macro
  const auto index_of = [&](std::string_view name) -> std::optional<std::size_t> {
    for (std::size_t i = 0; i < closure.given.size(); ++i)
      if (closure.given[i].name == name) return i;
    return std::nullopt;
  };
  SourceMeaning meaning(index_of, revealing_macros(definitions.toolkit),
                        any_macro(&Macro::stringises) ? Blanks::all : Blanks::that_part);
  manifest::Hasher hasher;
  hasher.field(static_cast<std::int64_t>(closure.given.size()));
  for (const manifest::SourceFile& file : closure.given) {
    const auto form = meaning.of(file.text);
    if (!form) return std::nullopt;
    hasher.field(has_toolkit ? std::string_view(file.name) : std::string_view()).field(*form);
  }
  for (const manifest::SourceFile& file : closure.toolkit) hasher.field(file.name).field(file.text);
  return hasher.finish();
}

/// Walks includes depth first, each file once, so that the order depends on the sources alone.
class ClosureWalk {
 public:
  explicit ClosureWalk(const Specialisation& specialisation) : specialisation_(specialisation) {}

  Closure run() {
    const manifest::SourceFile* entry = find_in(specialisation_.files, specialisation_.entry);
    if (entry == nullptr) {
      throw Error(ErrorKind::compile_failed, specialisation_.label + ": the source " + specialisation_.entry +
                                                 " is not among the files of " + specialisation_.folder + ".");
    }
    if (specialisation_.toolkit_headers) find_toolkit();
    visit_given(*entry);
    closure_.meaning = meaning_of(closure_, definitions_);
    return std::move(closure_);
  }

 private:
  void find_toolkit() {
    closure_.include_directories = cuda::toolkit_include_directories();
    if (!closure_.include_directories.empty()) return;
    throw Error(ErrorKind::compile_failed,
                specialisation_.label +
                    " includes CUDA toolkit headers and none were found; set CUDA_HOME, or install "
                    "the CUDA toolkit or the Python package nvidia-cuda-runtime");
  }

  const manifest::SourceFile* find_given(const std::string& name) const {
    const manifest::SourceFile* own = find_in(specialisation_.files, name);
    return own != nullptr ? own : find_in(manifest::common_headers(), name);
  }

  void visit_given(const manifest::SourceFile& file) {
    if (!seen_.insert(file.name).second) return;
    closure_.given.push_back(file);
    const std::string shown = shown_name(specialisation_, file.name);
    for (const Inclusion& asked : scan_template(shown, file.text, &definitions_.given)) {
      if (const manifest::SourceFile* given = find_given(asked.name)) {
        visit_given(*given);
      } else if (!visit_toolkit(asked.name, {}) && !asked.angled) {
        refuse_unknown(shown, asked);
      }
      // An unknown <name> may stand in a group that is compiled out; elsewhere NVRTC fails on it.
    }
  }

  /// Returns false when neither the includer's folder nor an include directory of the toolkit holds the file.
  bool visit_toolkit(const std::string& name, const path& includer_folder) {
    if (!includer_folder.empty() && visit_file(includer_folder / name)) return true;
    for (const path& folder : closure_.include_directories) {
      if (visit_file(folder / name)) return true;
    }
    return false;
  }

  bool visit_file(const path& file) {
    const path normal = file.lexically_normal();
    if (seen_.contains("<" + normal.string())) return true;
    auto text = read_text(normal);
    if (!text) return false;
    seen_.insert("<" + normal.string());
    const HeaderScan scan = scan_toolkit_header(*text);
    definitions_.toolkit.insert(definitions_.toolkit.end(), scan.macros.begin(), scan.macros.end());
    definitions_.toolkit_names_callers_place = definitions_.toolkit_names_callers_place || scan.names_callers_place;
    closure_.toolkit.push_back({include_name(normal), std::move(*text)});
    closure_.toolkit_paths.push_back(normal);
    for (const Inclusion& asked : scan.inclusions) {
      if (const manifest::SourceFile* given = find_given(asked.name)) {
        visit_given(*given);
      } else {
        visit_toolkit(asked.name, asked.angled ? path{} : normal.parent_path());
      }
    }
    return true;
  }

  /// Returns the path relative to the deepest include directory, so that the name does not depend on where the toolkit
  /// is installed.
  std::string include_name(const path& file) const {
    std::string best = "<" + file.filename().string() + ">";
    std::size_t deepest = 0;
    for (const path& folder : closure_.include_directories) {
      const std::string prefix = (folder / "").lexically_normal().string();
      if (prefix.size() <= deepest || !file.string().starts_with(prefix)) continue;
      deepest = prefix.size();
      best = "<" + file.string().substr(prefix.size()) + ">";
    }
    return best;
  }

  /// Returns " (did you mean "common/types.cuh"?)" for a name that is near one, or is one without its folder.
  std::string meant_by(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& files : {std::span<const manifest::SourceFile>(specialisation_.files), manifest::common_headers()})
      for (const manifest::SourceFile& file : files) names.push_back(file.name);
    const auto has_its_name = [&](const std::string& each) { return path(each).filename() == path(name).filename(); };
    const auto found = std::find_if(names.begin(), names.end(), has_its_name);
    return found == names.end() ? manifest::did_you_mean(name, names)
                                : " (did you mean " + manifest::quote(*found) + "?)";
  }

  [[noreturn]] void refuse_unknown(const std::string& shown, const Inclusion& asked) const {
    std::string known;
    for (const manifest::SourceFile& file : specialisation_.files) known += (known.empty() ? "" : ", ") + file.name;
    const bool may_be_own = asked.name.ends_with(".cuh") && asked.name.find('/') == std::string::npos;
    throw Error(
        ErrorKind::compile_failed,
        shown + "(" + std::to_string(asked.line) + "): includes \"" + asked.name +
            "\", which is neither a file of the op (" + known + ") nor a common/ header" + meant_by(asked.name) +
            (may_be_own ? "; add the file" : "; an op's headers are NAME.cuh beside op.toml, in no other folder") +
            (specialisation_.toolkit_headers ? "" : ", or set toolkit_headers = true for a CUDA toolkit header"));
  }

  const Specialisation& specialisation_;
  Closure closure_;
  Definitions definitions_;
  std::set<std::string> seen_;
};

}  // namespace

KnownClosure::KnownClosure(Closure walked) : closure(std::move(walked)) {
  for (const path& file : closure.toolkit_paths) stamps_.push_back(stamp_of(file));
}

manifest::Hasher KnownClosure::hasher(std::string_view kind, ByText& by_text, Over over) const {
  if (over == Over::meaning && closure.meaning) {
    manifest::Hasher hasher;
    hasher.field(kind).field(*closure.meaning);
    return hasher;
  }
  std::call_once(by_text.once, [&] {
    by_text.hasher.field(kind).field(static_cast<std::int64_t>(closure.given.size() + closure.toolkit.size()));
    for (const auto* files : {&closure.given, &closure.toolkit})
      for (const manifest::SourceFile& file : *files) by_text.hasher.field(file.name).field(file.text);
  });
  return by_text.hasher;
}

KnownClosure::Stamp KnownClosure::stamp_of(const path& file) {
  std::error_code gone;
  return {file, std::filesystem::last_write_time(file, gone), std::filesystem::file_size(file, gone)};
}

bool KnownClosure::holds() const {
  if (stamps_.empty()) return true;
  return cuda::toolkit_include_directories() == closure.include_directories &&
         std::all_of(stamps_.begin(), stamps_.end(), [](const Stamp& read) {
           const Stamp now = stamp_of(read.path);
           return now.written == read.written && now.bytes == read.bytes;
         });
}

std::shared_ptr<const KnownClosure> known_closure(const Specialisation& specialisation) {
  const std::string name =
      (specialisation.toolkit_headers ? "closure with toolkit of " : "closure of ") + specialisation.entry;
  auto kept = std::static_pointer_cast<const KnownClosure>(specialisation.files.kept(name));
  if (kept && kept->holds()) return kept;
  auto walked = std::make_shared<const KnownClosure>(ClosureWalk(specialisation).run());
  specialisation.files.keep(name, walked);
  return walked;
}

std::string shown_name(const Specialisation& specialisation, const std::string& file) {
  if (specialisation.folder.empty() || find_in(specialisation.files, file) == nullptr) return file;
  if (specialisation.folder == "built-in") return "templates/" + specialisation.op + "/" + file;
  return specialisation.folder + "/" + file;
}

std::vector<manifest::SourceFile> include_closure(const Specialisation& specialisation) {
  const auto known = known_closure(specialisation);
  std::vector<manifest::SourceFile> all = known->closure.given;
  all.insert(all.end(), known->closure.toolkit.begin(), known->closure.toolkit.end());
  return all;
}

}  // namespace kiln::jit
