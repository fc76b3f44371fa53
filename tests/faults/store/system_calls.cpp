#include "faults/store/system_calls.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <utility>

namespace kiln::faults {
namespace {

thread_local Watcher* current = nullptr;

/// Lets one call through, or not. What the watcher itself does with files is not shown to it.
template <class Real>
auto pass(Attempt attempt, Real&& real) -> decltype(real()) {
  Watcher* const watcher = std::exchange(current, nullptr);
  if (watcher == nullptr) return real();
  using Result = decltype(real());
  Result result = -1;
  int error = 0;
  if (const Fate fate = watcher->before(attempt); fate.error != 0) {
    if (fate.torn > 0) [[maybe_unused]]
      const auto torn = pwrite(attempt.file, attempt.bytes.data(), fate.torn, attempt.at);
    error = fate.error;
  } else {
    result = real();
    error = errno;
    if (result >= 0) watcher->after(attempt);
  }
  current = watcher;
  errno = error;
  return result;
}

std::span<const std::byte> bytes_of(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

int sqlite_open(const char* path, int flags, int mode) {
  return pass({.call = Call::open, .path = path, .creates = (flags & O_CREAT) != 0},
              [&] { return openat(AT_FDCWD, path, flags, mode); });
}
int sqlite_stat(const char* path, struct stat* status) {
  return pass({.call = Call::status, .path = path}, [&] { return fstatat(AT_FDCWD, path, status, 0); });
}
int sqlite_fstat(int file, struct stat* status) {
  return pass({.call = Call::status, .file = file}, [&] { return fstat(file, status); });
}
int sqlite_lstat(const char* path, struct stat* status) {
  return pass({.call = Call::status, .path = path},
              [&] { return fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW); });
}
int sqlite_access(const char* path, int mode) {
  return pass({.call = Call::status, .path = path}, [&] { return faccessat(AT_FDCWD, path, mode, 0); });
}
ssize_t sqlite_read(int file, void* data, std::size_t size) {
  return pass({.call = Call::read, .file = file}, [&] { return read(file, data, size); });
}
ssize_t sqlite_pread(int file, void* data, std::size_t size, off_t at) {
  return pass({.call = Call::read, .file = file}, [&] { return pread(file, data, size, at); });
}
ssize_t sqlite_write(int file, const void* data, std::size_t size) {
  return pass({.call = Call::write, .file = file, .at = lseek(file, 0, SEEK_CUR), .bytes = bytes_of(data, size)},
              [&] { return write(file, data, size); });
}
ssize_t sqlite_pwrite(int file, const void* data, std::size_t size, off_t at) {
  return pass({.call = Call::write, .file = file, .at = at, .bytes = bytes_of(data, size)},
              [&] { return pwrite(file, data, size, at); });
}
int sqlite_ftruncate(int file, off_t length) {
  return pass({.call = Call::truncate, .file = file, .at = length}, [&] { return ftruncate(file, length); });
}
int sqlite_fallocate(int file, off_t at, off_t length) {
  return pass({.call = Call::truncate, .file = file, .at = at + length},
              [&] { return posix_fallocate(file, at, length); });
}
/// The commands that are shown. No file system refuses to let go.
bool locks(int command, const void* argument) {
  switch (command) {
    case F_GETLK:
    case F_OFD_GETLK: return true;
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_SETLK: return static_cast<const struct flock*>(argument)->l_type != F_UNLCK;
    default: return false;
  }
}
int pass_fcntl(int file, int command, void* argument) {
  const auto real = [&] { return static_cast<int>(syscall(SYS_fcntl, file, command, argument)); };
  return locks(command, argument) ? pass({.call = Call::lock, .file = file}, real) : real();
}
int sqlite_fcntl(int file, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return pass_fcntl(file, command, argument);
}
int sqlite_unlink(const char* path) {
  return pass({.call = Call::unlink, .path = path}, [&] { return unlinkat(AT_FDCWD, path, 0); });
}

struct Entry {
  const char* name;
  sqlite3_syscall_ptr call;
};
template <class Function>
Entry entry(const char* name, Function* function) {
  return {name, reinterpret_cast<sqlite3_syscall_ptr>(function)};
}

const std::array entries = {
    entry("open", sqlite_open),           entry("stat", sqlite_stat),       entry("fstat", sqlite_fstat),
    entry("lstat", sqlite_lstat),         entry("access", sqlite_access),   entry("read", sqlite_read),
    entry("pread", sqlite_pread),         entry("pread64", sqlite_pread),   entry("write", sqlite_write),
    entry("pwrite", sqlite_pwrite),       entry("pwrite64", sqlite_pwrite), entry("ftruncate", sqlite_ftruncate),
    entry("fallocate", sqlite_fallocate), entry("fcntl", sqlite_fcntl),     entry("unlink", sqlite_unlink)};

/// An entry that this build of SQLite does not use stays empty.
void set_calls(bool ours) {
  sqlite3_vfs* const vfs = sqlite3_vfs_find("unix");
  for (const Entry& each : entries)
    if (vfs->xGetSystemCall(vfs, each.name) != nullptr) vfs->xSetSystemCall(vfs, each.name, ours ? each.call : nullptr);
}

}  // namespace

Watch::Watch(Watcher& watcher) {
  set_calls(true);
  current = &watcher;
}

Watch::~Watch() {
  current = nullptr;
  set_calls(false);
}

}  // namespace kiln::faults

// What the store itself calls, and what SQLite calls outside of its table.
namespace faults = kiln::faults;
using faults::Call;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : mode_t{0};
  va_end(list);
  return faults::pass({.call = Call::open, .path = path, .creates = (flags & O_CREAT) != 0},
                      [&] { return openat(AT_FDCWD, path, flags, mode); });
}
int fcntl(int file, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return faults::pass_fcntl(file, command, argument);
}
int fsync(int file) {
  return faults::pass({.call = Call::sync, .file = file}, [&] { return static_cast<int>(syscall(SYS_fsync, file)); });
}
int fdatasync(int file) {
  return faults::pass({.call = Call::sync, .file = file},
                      [&] { return static_cast<int>(syscall(SYS_fdatasync, file)); });
}
int unlink(const char* path) noexcept {
  return faults::pass({.call = Call::unlink, .path = path}, [&] { return unlinkat(AT_FDCWD, path, 0); });
}
int rename(const char* from, const char* to) noexcept {
  return faults::pass({.call = Call::rename, .path = from, .to = to},
                      [&] { return renameat(AT_FDCWD, from, AT_FDCWD, to); });
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return faults::pass({.call = Call::rename, .path = from, .to = to}, [&] {
    return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return faults::pass({.call = Call::make_folder, .path = path}, [&] { return mkdirat(AT_FDCWD, path, mode); });
}

}  // extern "C"
