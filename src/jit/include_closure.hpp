// The files of one compile and where the compiler may find those that are not handed to it. Private to the module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "jit/specialisation.hpp"

namespace kiln::jit {

struct Closure {
  std::vector<manifest::SourceFile> given;           // handed to the compiler in memory; the entry comes first
  std::vector<manifest::SourceFile> toolkit;         // which the compiler reads from include_directories; "<name>"
  std::vector<std::filesystem::path> toolkit_paths;  // of each
  std::vector<std::filesystem::path> include_directories;  // of the toolkit; empty without toolkit_headers
};

/// See include_closure(), which joins the two lists. Walked once for each list of sources, entry and toolkit_headers, and kept with the sources; with
/// toolkit headers as long as those are the same files, unchanged.
struct KnownClosure final : manifest::Sources::Finding {
  explicit KnownClosure(Closure walked);
  /// Whether the toolkit's files are those that were read.
  [[nodiscard]] bool holds() const;

  const Closure closure;
  manifest::Hasher cubin_key, source_digest;  // begun with the closure

 private:
  struct Stamp {
    std::filesystem::path path;
    std::filesystem::file_time_type written;
    std::uintmax_t bytes = 0;
  };
  static Stamp stamp_of(const std::filesystem::path& path);
  std::vector<Stamp> stamps_;
};
std::shared_ptr<const KnownClosure> known_closure(const Specialisation& specialisation);

/// A file of the op as messages name it: "templates/rms_norm/rms_norm.cuh"; a common/ header by its own name.
std::string shown_name(const Specialisation& specialisation, const std::string& file);

}  // namespace kiln::jit
