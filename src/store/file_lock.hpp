// The locks on a database file that SQLite asks of a VFS, held by an open file description.
#pragma once

#include <sys/types.h>

#include "store/guards.hpp"

namespace kiln::store {

/// SQLite's own locks belong to a process: a second copy of SQLite in it is not excluded, and takes them away when it
/// closes the file. These belong to one descriptor (F_OFD_SETLK). They cover SQLite's bytes, so they exclude every
/// other description, of this process or another one, and every program that uses SQLite's own locks in another
/// process.
///
/// Levels and codes are SQLite's. Not thread-safe. In a child of fork() nothing is held, and nothing can be taken.
class FileLock {
 public:
  /// Owns the descriptor, which must be open for writing where more than SQLITE_LOCK_SHARED is taken.
  explicit FileLock(int descriptor) noexcept : file_(descriptor) {}

  /// Returns whether this system has such locks: Linux has, some systems that imitate it have not.
  [[nodiscard]] static bool are_supported() noexcept;

  /// Returns SQLITE_OK, SQLITE_BUSY if another description is in the way, or a failure with errno. A refused
  /// SQLITE_LOCK_EXCLUSIVE may leave SQLITE_LOCK_PENDING, which keeps new readers out.
  int raise_to(int level) noexcept;
  /// `level` is SQLITE_LOCK_SHARED or SQLITE_LOCK_NONE.
  int lower_to(int level) noexcept;
  /// Sets whether any description holds SQLITE_LOCK_RESERVED or more.
  int is_reserved(bool& reserved) const noexcept;

 private:
  [[nodiscard]] bool set(short type, off_t first, off_t count) const noexcept;
  [[nodiscard]] int share() const noexcept;

  ParentsDescriptor file_;
  int held_ = 0;
};

}  // namespace kiln::store
