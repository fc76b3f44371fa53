#include "store/plain_files.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "store/custody.hpp"
#include "store/file_lock.hpp"

namespace kiln::store {
namespace {

/// What a database has behind the usual VFS's own part of its sqlite3_file.
struct Database {
  const sqlite3_io_methods* usual;
  FileLock lock;
};

Database& database_of(sqlite3_file* file);

int close_database(sqlite3_file* file) {
  Database& database = database_of(file);
  const sqlite3_io_methods* const usual = database.usual;
  std::destroy_at(&database);
  return usual->xClose(file);
}
int lock_database(sqlite3_file* file, int level) { return database_of(file).lock.raise_to(level); }
int unlock_database(sqlite3_file* file, int level) { return database_of(file).lock.lower_to(level); }
int is_reserved(sqlite3_file* file, int* result) {
  bool reserved = false;
  const int code = database_of(file).lock.is_reserved(reserved);
  *result = reserved ? 1 : 0;
  return code;
}

/// A VFS has a few sets of methods, one for each way to lock a file.
struct Methods {
  const sqlite3_io_methods* usual;
  sqlite3_io_methods plain, of_database;
};

const Methods& methods_for(const sqlite3_io_methods* usual) {
  static std::mutex mutex;
  static auto* const known = new std::list<Methods>;  // never destroyed: files may be open after the end of main()
  const std::lock_guard guard(mutex);
  for (const Methods& each : *known)
    if (each.usual == usual) return each;
  Methods& made = known->emplace_back(Methods{usual, *usual, {}});
  made.plain.iVersion = 1;  // without the methods of version 2 (shared memory) and 3 (mapped pages)
  made.of_database = made.plain;
  made.of_database.xClose = close_database;
  made.of_database.xLock = lock_database;
  made.of_database.xUnlock = unlock_database;
  made.of_database.xCheckReservedLock = is_reserved;
  return made;
}

int open_plain(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* given);

struct Plain {
  sqlite3_vfs* usual = sqlite3_vfs_find(nullptr);
  sqlite3_vfs vfs = *usual;
  int database_at = 0;
  std::string name = fmt::format("kiln-{}", static_cast<const void*>(this));
  Plain() {
    constexpr int alignment = alignof(Database);
    database_at = (usual->szOsFile + alignment - 1) / alignment * alignment;
    vfs.szOsFile = database_at + static_cast<int>(sizeof(Database));
    vfs.zName = name.c_str();
    vfs.pNext = nullptr;
    vfs.xOpen = open_plain;
    sqlite3_vfs_register(&vfs, 0);
  }
};

// Never destroyed, its name included: an SQLite that others share keeps it after dlclose() of this copy.
Plain& only() {
  static auto* const made = [] {
    sqlite3_initialize();
    return new Plain;
  }();
  return *made;
}

Database& database_of(sqlite3_file* file) {
  return *reinterpret_cast<Database*>(reinterpret_cast<std::byte*>(file) + only().database_at);
}

/// Opens the file once more, for its locks. Standard streams that are closed leave their numbers free: what is printed
/// must not go to the file. Returns -1 with errno.
int open_for_locks(const char* name, bool writing) {
  const int flags = (writing ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
  const int number = open(name, flags);
  if (number < 0 || number > STDERR_FILENO) return number;
  const int above = fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(number);
  errno = error;
  return above;
}

/// Returns whether both descriptors are of the file that has this name now, so that none was put in its place between.
bool are_one_file(const char* name, sqlite3_file* opened, int for_locks) {
  int moved = 0;
  opened->pMethods->xFileControl(opened, SQLITE_FCNTL_HAS_MOVED, &moved);
  struct stat status {};
  return moved == 0 && fstat(for_locks, &status) == 0 && identity_of(name) == Identity{status.st_dev, status.st_ino};
}

void close_again(sqlite3_file* file) {
  const int error = errno;
  file->pMethods->xClose(file);
  file->pMethods = nullptr;
  errno = error;
}

int open_usual(const char* name, sqlite3_file* file, int flags, int* given) {
  sqlite3_vfs* const usual = only().usual;
  const int code = usual->xOpen(usual, name, file, flags, given);
  if (file->pMethods != nullptr) file->pMethods = &methods_for(file->pMethods).plain;
  return code;
}

int open_database(const char* name, sqlite3_file* file, int flags, int* given) {
  sqlite3_vfs* const usual = only().usual;
  for (int tries = 100; tries > 0; --tries) {
    const int code = usual->xOpen(usual, name, file, flags, given);
    if (file->pMethods == nullptr) return code;
    const int for_locks = open_for_locks(name, (*given & SQLITE_OPEN_READWRITE) != 0);
    if (for_locks < 0) {
      close_again(file);
      return SQLITE_CANTOPEN;
    }
    if (are_one_file(name, file, for_locks)) {
      new (&database_of(file)) Database{file->pMethods, FileLock(for_locks)};
      file->pMethods = &methods_for(file->pMethods).of_database;
      return SQLITE_OK;
    }
    close(for_locks);
    close_again(file);
  }
  return SQLITE_CANTOPEN;
}

int open_plain(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* given) {
  int ignored = 0;
  int* const allowed = given != nullptr ? given : &ignored;
  const bool locks = (flags & SQLITE_OPEN_MAIN_DB) != 0 && name != nullptr && FileLock::are_supported();
  return (locks ? open_database : open_usual)(name, file, flags, allowed);
}

}  // namespace

const char* plain_files() { return only().vfs.zName; }

}  // namespace kiln::store
