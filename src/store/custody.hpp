// Who may have written a file: paths, links, owners and permissions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <sys/types.h>

#include "store/guards.hpp"

namespace kiln::store {

/// Returns the absolute path that SQLite opens. Links in the folder are resolved. The last name is not, so that a link
/// in the file's place is found. Throws Error(bad_input) for a path that is empty, names a folder or holds a NUL, and
/// Error(io).
std::filesystem::path literal_path(const std::filesystem::path& path);

/// Returns the path for opening a file read-only: literal_path() with all links resolved. Throws as literal_path()
/// does.
std::filesystem::path readable_path(const std::filesystem::path& path);

/// Returns why Kiln must not write to a file, or an empty string. Reasons: it is a link or not a regular file; others
/// may write it, its folder or its journal, which SQLite would play back. A missing file has none. Folder and journal
/// may belong to the file's owner, this user or root.
std::string file_objection(const std::filesystem::path& path);
/// As file_objection, for an overlay, whose machine code is loaded: file, folder and journal must belong to this user
/// or root.
std::string overlay_objection(const std::filesystem::path& path);

/// Returns why other users could create files in a folder, or an empty string.
std::string folder_objection(const std::filesystem::path& folder);

/// Returns how any user could change the code of an op, or an empty string: all may write its folder, the one above, or
/// a file of it.
std::string op_objection(const std::filesystem::path& folder);
/// Returns that others may read or write a private key, or an empty string.
std::string secret_objection(const std::filesystem::path& file);

struct Trust {
  bool trusted = false;
  std::string why;
};
/// Checks the policy `owner`: file and folder belong to root or this user, and nobody else may write them.
Trust owner_trust(const std::filesystem::path& path);

/// Identifies the file at a path.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const Identity&) const = default;
};
/// What differs when a file was overwritten in place, besides its bytes.
struct Stamp {
  Identity identity;
  std::int64_t bytes = 0, seconds = 0, nanoseconds = 0;  // size, and time of the last change
  bool operator==(const Stamp&) const = default;
};
/// Return zeros when there is no such file.
Stamp stamp_of(const std::filesystem::path& path) noexcept;
Identity identity_of(const std::filesystem::path& path) noexcept;
/// Returns true when nothing has this path, and false when the file system fails.
bool is_missing(const std::filesystem::path& path) noexcept;

/// Creates missing folders with mode 0700. Throws Error(no_permission) or Error(io).
void create_private_folders(const std::filesystem::path& folder);

/// Locks a folder while a file in it is created or set aside, so that one process at a time does so. After 5 s, or
/// where the file system has no locks, goes on without. Blocks fork(), since a child would keep the lock.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Makes renames inside the folder durable.
  void sync() const noexcept;

 private:
  ForkGuard no_fork_;
  int descriptor_;
};

}  // namespace kiln::store
