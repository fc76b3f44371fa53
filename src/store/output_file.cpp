#include "store/output_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "kiln/error.hpp"
#include "store/custody.hpp"
#include "store/file_system.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = ".kiln-", suffix = ".tmp", content = "content", journal = "content-journal";
constexpr std::size_t random_bytes = 16;

/// The kind and the advice depend on errno.
[[noreturn]] void cannot_write(const fs::path& target) {
  const bool refused = errno == EACCES || errno == EPERM || errno == EROFS;
  const std::string_view advice = errno == ENOENT  ? "; make its folder first"
                                  : errno == EBUSY ? "; it is mounted by itself: mount its folder instead"
                                                   : "";
  throw Error(refused ? ErrorKind::no_permission : ErrorKind::io,
              fmt::format("'{}' cannot be written: {}{}", target.string(), error_in_words(errno, target.parent_path()),
                          advice));
}

struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

/// Returns an empty string when the system has no random numbers.
std::string unguessable_name() {
  std::array<unsigned char, random_bytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return {};
  std::string name(prefix);
  for (const unsigned byte : bytes) name += fmt::format("{:02x}", byte);
  return name.append(suffix);
}

bool is_name_of_ours(std::string_view name) {
  constexpr std::size_t digits = 2 * random_bytes;
  return name.size() == prefix.size() + digits + suffix.size() && name.starts_with(prefix) && name.ends_with(suffix) &&
         name.substr(prefix.size(), digits).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

int open_folder(const fs::path& folder) {
  return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// Removes only the files that an OutputFile creates, and then the folder if it is empty.
void remove_folder(int descriptor, const fs::path& folder) {
  for (const std::string_view name : {content, journal}) ::unlinkat(descriptor, name.data(), 0);
  ::rmdir(folder.c_str());
}

void remove_if_dead(const fs::path& folder) {
  const Descriptor opened{open_folder(folder)};
  struct stat status {};
  if (opened.number < 0 || ::fstat(opened.number, &status) != 0 || status.st_uid != ::geteuid()) return;
  if (::flock(opened.number, LOCK_EX | LOCK_NB) == 0) remove_folder(opened.number, folder);
}

void remove_leftovers(const fs::path& folder) {
  if (!remote_file_system(folder).empty()) return;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (is_name_of_ours(entry->path().filename().native())) remove_if_dead(entry->path());
}

bool rename_to_free_name(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno != EINVAL && errno != ENOSYS) cannot_write(to);
  // This file system has no RENAME_NOREPLACE.
  if (!is_missing(to)) return false;
  if (::rename(from.c_str(), to.c_str()) != 0) cannot_write(to);
  return true;
}

void write_all(int descriptor, std::string_view text, const fs::path& target) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) cannot_write(target);
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// A device or pipe, which is written to in place.
bool is_stream(const fs::path& target) {
  struct stat status {};
  return ::stat(target.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
}

}  // namespace

OutputFile::OutputFile(fs::path target) : target_(std::move(target)) {
  remove_leftovers(target_.parent_path());
  constexpr int tries = 16;  // another process's remove_leftovers() may lock the new folder first
  for (int attempt = 0; attempt < tries; ++attempt)
    if (lock_new_folder()) return;
  errno = EAGAIN;
  cannot_write(target_);
}

bool OutputFile::lock_new_folder() {
  const std::string name = unguessable_name();
  if (name.empty()) cannot_write(target_);
  folder_ = target_.parent_path() / name;
  if (::mkdir(folder_.c_str(), S_IRWXU) != 0) {
    if (errno == EEXIST) return false;
    cannot_write(target_);
  }
  path_ = folder_ / content;
  lock_ = open_folder(folder_);
  struct stat status {};
  const bool taken = lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (lock_ >= 0 && !taken && ::fstat(lock_, &status) == 0 &&
      identity_of(folder_) == Identity{status.st_dev, status.st_ino})
    return true;
  if (lock_ < 0 && errno != ENOENT) {
    const int reason = errno;  // such as too many open files
    ::rmdir(folder_.c_str());
    errno = reason;
    cannot_write(target_);
  }
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  return false;
}

OutputFile::~OutputFile() {
  if (lock_ < 0) return;
  remove_folder(lock_, folder_);
  ::close(lock_);
}

bool OutputFile::move_into_place(Existing existing) {
  if (existing == Existing::keep) {
    if (!rename_to_free_name(path_, target_)) return false;
  } else if (::rename(path_.c_str(), target_.c_str()) != 0) {
    cannot_write(target_);
  }
  const Descriptor parent{::open(target_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (parent.number >= 0) ::fsync(parent.number);
  return true;
}

void check_target(const fs::path& target, Existing existing) {
  struct stat status {};
  if (::lstat(target.c_str(), &status) != 0) return;
  if (S_ISLNK(status.st_mode))
    throw Error(
        ErrorKind::bad_input,
        fmt::format("'{}' is a symbolic link and is not replaced; name the file that it leads to", target.string()));
  if (!S_ISREG(status.st_mode))
    throw Error(ErrorKind::bad_input, fmt::format("'{}' is not a regular file and is not replaced", target.string()));
  if (existing == Existing::keep)
    throw Error(ErrorKind::bad_input,
                fmt::format("'{}' exists; allow it to be overwritten, or name another file", target.string()));
}

void write_text(const fs::path& target, std::string_view text) {
  if (is_stream(target)) {
    const Descriptor stream{::open(target.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC)};
    if (stream.number < 0) cannot_write(target);
    return write_all(stream.number, text, target);
  }
  check_target(target, Existing::replace);
  OutputFile output(target);
  {
    constexpr mode_t all_may_read = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;  // less the umask
    const Descriptor file{::open(output.path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, all_may_read)};
    if (file.number < 0) cannot_write(target);
    write_all(file.number, text, target);
    if (::fsync(file.number) != 0) cannot_write(target);
  }
  output.move_into_place(Existing::replace);
}

}  // namespace kiln::store
