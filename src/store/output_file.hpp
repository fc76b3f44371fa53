// Files that are written whole or not at all: every output of the library and the command goes this way.
#pragma once

#include <filesystem>
#include <string_view>

#include "store/file.hpp"

namespace kiln::store {

/// A place to write a file, in a folder ".kiln-HEX.tmp" of this user alone beside the target. The folder has an unguessable name and is locked while
/// its writer lives, so that writers in other processes, containers too, never touch it. A writer that died leaves it behind: the next
/// output in the target's folder removes it, but not on a network or user-space file system, where locks of other machines are not seen.
class OutputFile {
 public:
  /// `target` comes from literal_path(). Throws Error(no_permission) or Error(io), naming the target.
  explicit OutputFile(std::filesystem::path target);
  /// Removes what was not published.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const std::filesystem::path& target() const noexcept { return target_; }
  /// Where to write. The caller makes the file, and has it synced and closed before publish().
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Renames the file to the target, for good: who opens the target gets the old file or the new one. False, and nothing is changed, when
  /// `existing` is keep and something has the target's name. Throws as the constructor does.
  bool publish(Existing existing);

 private:
  bool lock_new_folder();

  std::filesystem::path target_, folder_, path_;
  int lock_ = -1;
};

/// Throws Error(bad_input) unless an output may have this name: what is there is a regular file, and `existing` is replace.
void check_target(const std::filesystem::path& target, Existing existing);

/// Writes the text to the target, which replaces a regular file. A device or a pipe is written to as it is. Throws as above.
void write_text(const std::filesystem::path& target, std::string_view text);

}  // namespace kiln::store
