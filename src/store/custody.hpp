// Who may have written a file: paths, links, owners and permissions.
#pragma once

#include <filesystem>
#include <string>

#include <sys/types.h>

#include "store/fork_guard.hpp"

namespace kiln::store {

/// The absolute path that SQLite is given: every link of the folder is resolved, the last name is not, so that a link
/// in its place is seen. Throws Error(bad_input) for an empty path or one that holds a NUL.
std::filesystem::path literal_path(const std::filesystem::path& path);

/// The path that is opened for reading only: that of the file which literal_path() leads to by whatever links.
std::filesystem::path readable_path(const std::filesystem::path& path);

/// Why a file may not be written to, or an empty string: it is a link, not a regular file, or others may write it, its folder or its
/// journal, which SQLite would play back into it. A file that does not exist is fine. Folder and journal may belong to the file's
/// owner too, who needs no journal to change it.
std::string file_objection(const std::filesystem::path& path);
/// The same for an overlay, whose machine code is loaded: file, folder and journal must belong to this user (or root).
std::string overlay_objection(const std::filesystem::path& path);

/// Why others could put files of their own into a folder, or an empty string.
std::string folder_objection(const std::filesystem::path& folder);

struct Trust {
  bool trusted = false;
  std::string why;
};
/// The policy `owner`: file and folder belong to root or to this user, and nobody else may write them.
Trust owner_trust(const std::filesystem::path& path);

/// Which file stands under a path.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const Identity&) const = default;
};
/// All zero when there is none.
Identity identity_of(const std::filesystem::path& path) noexcept;
/// True when there is nothing under the path, for certain: a disk that will not say is no reason to think so.
bool is_missing(const std::filesystem::path& path) noexcept;

/// Makes missing folders, for this user alone. Throws Error(no_permission) or Error(io).
void create_private_folders(const std::filesystem::path& folder);

/// Held while a file is made or set aside, so that two processes do not do it at once. Waits a bounded time; a folder
/// that cannot be locked, as on some network file systems, is used unlocked. A child of fork would hold the lock on.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Makes a rename inside the folder last.
  void sync() const noexcept;

 private:
  ForkGuard no_fork_;
  int descriptor_;
};

}  // namespace kiln::store
