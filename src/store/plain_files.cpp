#include "store/plain_files.hpp"

#include <sqlite3.h>

#include <list>
#include <mutex>

namespace kiln::store {
namespace {

/// A VFS has a few sets of methods, one for each way to lock a file.
struct Methods {
  const sqlite3_io_methods* usual;
  sqlite3_io_methods plain;
};

/// Returns the methods without those of version 2 (shared memory) and 3 (mapped pages).
const sqlite3_io_methods* plain(const sqlite3_io_methods* usual) {
  static std::mutex mutex;
  static auto* const known = new std::list<Methods>;  // never destroyed: files may be open after the end of main()
  const std::lock_guard guard(mutex);
  for (const Methods& each : *known)
    if (each.usual == usual) return &each.plain;
  Methods& made = known->emplace_back(Methods{usual, *usual});
  made.plain.iVersion = 1;
  return &made.plain;
}

int open_plain(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* given);

struct Plain {
  sqlite3_vfs* usual = sqlite3_vfs_find(nullptr);
  sqlite3_vfs vfs = *usual;
  Plain() {
    vfs.zName = "kiln";
    vfs.pNext = nullptr;
    vfs.xOpen = open_plain;
    sqlite3_vfs_register(&vfs, 0);
  }
};

Plain& only() {
  static auto* const made = [] {
    sqlite3_initialize();
    return new Plain;
  }();
  return *made;
}

int open_plain(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* given) {
  sqlite3_vfs* const usual = only().usual;
  const int code = usual->xOpen(usual, name, file, flags, given);
  if (file->pMethods != nullptr) file->pMethods = plain(file->pMethods);
  return code;
}

}  // namespace

const char* plain_files() { return only().vfs.zName; }

}  // namespace kiln::store
