#include "store/file_lock.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>

namespace kiln::store {
namespace {

// The bytes that SQLite locks on every system (https://www.sqlite.org/src/file/src/os.h). None of them holds data.
//   SHARED     a read lock on the shared bytes, asked for under a read lock on the pending byte
//   RESERVED   also a write lock on the reserved byte
//   PENDING    also a write lock on the pending byte
//   EXCLUSIVE  a write lock on the shared bytes
constexpr off_t pending_byte = 0x40000000, reserved_byte = pending_byte + 1, first_shared = pending_byte + 2;
constexpr off_t shared_bytes = 510;

struct flock region(short type, off_t first, off_t count) noexcept {
  struct flock lock {};  // l_pid must be 0
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return lock;
}

/// Returns SQLite's code for the errno of a lock, as its own VFS does.
int code_of_error(int otherwise) noexcept {
  switch (errno) {
    case EACCES:
    case EAGAIN:
    case EBUSY:
    case EINTR:
    case ENOLCK:
    case ETIMEDOUT: return SQLITE_BUSY;
    case EPERM: return SQLITE_PERM;
    default: return otherwise;
  }
}

}  // namespace

bool FileLock::set(short type, off_t first, off_t count) const noexcept {
  struct flock lock = region(type, first, count);
  return fcntl(file_.number(), F_OFD_SETLK, &lock) == 0;
}

// Not asked of a database: where SQLite's own locks are used, closing a descriptor of it would drop them.
bool FileLock::are_supported() noexcept {
  static const bool supported = [] {
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file < 0) return true;
    struct flock lock = region(F_RDLCK, reserved_byte, 1);
    const bool unknown = fcntl(file, F_OFD_GETLK, &lock) != 0 && errno == EINVAL;
    close(file);
    return !unknown;
  }();
  return supported;
}

int FileLock::share() const noexcept {
  if (!set(F_RDLCK, pending_byte, 1)) return code_of_error(SQLITE_IOERR_LOCK);
  const int code = set(F_RDLCK, first_shared, shared_bytes) ? SQLITE_OK : code_of_error(SQLITE_IOERR_LOCK);
  const int error = errno;
  const bool let_go = set(F_UNLCK, pending_byte, 1);
  if (code == SQLITE_OK) return let_go ? SQLITE_OK : SQLITE_IOERR_UNLOCK;
  errno = error;
  return code;
}

int FileLock::raise_to(int level) noexcept {
  if (held_ >= level) return SQLITE_OK;
  if (level == SQLITE_LOCK_SHARED) {
    const int code = share();
    if (code == SQLITE_OK) held_ = level;
    return code;
  }
  // A reader that plays a journal back goes from SHARED to EXCLUSIVE without PENDING: of two, each would wait for both.
  if (level == SQLITE_LOCK_EXCLUSIVE && held_ == SQLITE_LOCK_RESERVED) {
    if (!set(F_WRLCK, pending_byte, 1)) return code_of_error(SQLITE_IOERR_LOCK);
    held_ = SQLITE_LOCK_PENDING;
  }
  const bool exclusive = level == SQLITE_LOCK_EXCLUSIVE;
  if (!set(F_WRLCK, exclusive ? first_shared : reserved_byte, exclusive ? shared_bytes : 1))
    return code_of_error(SQLITE_IOERR_LOCK);
  held_ = level;
  return SQLITE_OK;
}

int FileLock::lower_to(int level) noexcept {
  if (held_ <= level) return SQLITE_OK;
  if (file_.number() < 0 || level == SQLITE_LOCK_NONE) {
    held_ = level;
    return file_.number() < 0 || set(F_UNLCK, 0, 0) ? SQLITE_OK : SQLITE_IOERR_UNLOCK;
  }
  if (!set(F_RDLCK, first_shared, shared_bytes)) return SQLITE_IOERR_RDLOCK;
  if (!set(F_UNLCK, pending_byte, 2)) return SQLITE_IOERR_UNLOCK;
  held_ = level;
  return SQLITE_OK;
}

int FileLock::is_reserved(bool& reserved) const noexcept {
  reserved = held_ > SQLITE_LOCK_SHARED;
  if (reserved) return SQLITE_OK;
  struct flock lock = region(F_WRLCK, reserved_byte, 1);
  if (fcntl(file_.number(), F_OFD_GETLK, &lock) != 0) return SQLITE_IOERR_CHECKRESERVEDLOCK;
  reserved = lock.l_type != F_UNLCK;
  return SQLITE_OK;
}

}  // namespace kiln::store
