// Output files that are written completely or not at all.
#pragma once

#include <filesystem>
#include <string_view>

#include "store/file_types.hpp"

namespace kiln::store {

/// A temporary file in a private folder ".kiln-HEX.tmp" beside the target. HEX is random, and the folder is locked
/// while the OutputFile lives, so no other process or container touches it. A process that dies leaves the folder
/// behind. The next output beside it removes it, except on remote file systems, where locks of other machines are
/// invisible.
class OutputFile {
 public:
  /// Precondition: `target` comes from literal_path(). Throws Error(no_permission) or Error(io), naming the target.
  explicit OutputFile(std::filesystem::path target);
  /// Removes the temporary file unless it was published.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const std::filesystem::path& target() const noexcept { return target_; }
  /// The temporary file's path. The caller creates it, and syncs and closes it before move_into_place().
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Renames the file to the target, atomically and durably. Returns false and changes nothing when `existing` is keep
  /// and the target exists. Throws as the constructor does.
  bool move_into_place(Existing existing);

 private:
  bool lock_new_folder();

  std::filesystem::path target_, folder_, path_;
  int lock_ = -1;
};

/// Throws Error(bad_input) unless the target is missing, or is a regular file and `existing` is replace.
void check_target(const std::filesystem::path& target, Existing existing);

/// Writes the text to the target: replaces a regular file, or writes into a device or pipe. Throws Error(bad_input),
/// Error(no_permission) or Error(io).
void write_text(const std::filesystem::path& target, std::string_view text);

}  // namespace kiln::store
