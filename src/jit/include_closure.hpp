// The source files of one compile. Private to the module.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/specialisation.hpp"

namespace kiln::jit {

struct Closure {
  std::vector<manifest::SourceFile> given;                 // passed to NVRTC in memory; the entry comes first
  std::vector<manifest::SourceFile> toolkit;               // read by NVRTC from include_directories; named "<name>"
  std::vector<std::filesystem::path> toolkit_paths;        // of each file of `toolkit`
  std::vector<std::filesystem::path> include_directories;  // empty without toolkit_headers
  /// Digest of the forms of `given` (SourceMeaning) and of `toolkit` by name and text. Nothing where more than the
  /// tokens of `given` may reach the machine code.
  std::optional<manifest::Digest> meaning;
};

/// What of the given files a digest covers. Toolkit headers are covered by text and name.
enum class Over : std::uint8_t {
  meaning,  // Closure::meaning, where there is one, else text
  text,     // names and texts
};

/// A closure kept with the sources that it was found in, by entry and toolkit_headers. It is walked again when a
/// toolkit header changed.
struct KnownClosure final : manifest::Sources::Finding {
  explicit KnownClosure(Closure walked);
  /// Whether the toolkit's files are unchanged since they were read.
  [[nodiscard]] bool holds() const;
  /// Both return a hasher that has hashed the closure; callers add the rest. Thread-safe.
  [[nodiscard]] manifest::Hasher for_cubin_key(Over over) const { return hasher("cubin", by_text_[0], over); }
  [[nodiscard]] manifest::Hasher for_source_digest(Over over) const { return hasher("source", by_text_[1], over); }

  const Closure closure;

 private:
  struct ByText {
    std::once_flag once;
    manifest::Hasher hasher;
  };
  manifest::Hasher hasher(std::string_view kind, ByText& by_text, Over over) const;

  mutable std::array<ByText, 2> by_text_;  // made when asked for
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

/// The name of a file in messages: "templates/rms_norm/rms_norm.cuh" for a file of the op, its own name for a common/
/// header.
std::string shown_name(const Specialisation& specialisation, const std::string& file);

}  // namespace kiln::jit
