// The source files of one compile. Private to the module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "jit/specialisation.hpp"

namespace kiln::jit {

struct Closure {
  std::vector<manifest::SourceFile> given;                 // passed to NVRTC in memory; the entry comes first
  std::vector<manifest::SourceFile> toolkit;               // read by NVRTC from include_directories; named "<name>"
  std::vector<std::filesystem::path> toolkit_paths;        // of each file of `toolkit`
  std::vector<std::filesystem::path> include_directories;  // empty without toolkit_headers
};

/// A closure kept with the sources that it was found in, by entry and toolkit_headers. It is walked again when a toolkit header changed.
struct KnownClosure final : manifest::Sources::Finding {
  explicit KnownClosure(Closure walked);
  /// Whether the toolkit's files are unchanged since they were read.
  [[nodiscard]] bool holds() const;

  const Closure closure;
  manifest::Hasher cubin_key, source_digest;  // the closure is hashed; callers add the rest

 private:
  struct Stamp {
    std::filesystem::path path;
    std::filesystem::file_time_type written;
    std::uintmax_t bytes = 0;
  };
  static Stamp stamp_of(const std::filesystem::path& path);
  std::vector<Stamp> stamps_;
};
/// Throws as include_closure() does.
std::shared_ptr<const KnownClosure> known_closure(const Specialisation& specialisation);

/// The name of a file in messages: "templates/rms_norm/rms_norm.cuh" for a file of the op, its own name for a common/ header.
std::string shown_name(const Specialisation& specialisation, const std::string& file);

}  // namespace kiln::jit
