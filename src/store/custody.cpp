#include "store/custody.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "kiln/error.hpp"
#include "manifest/ownership.hpp"
#include "store/file_system.hpp"

namespace kiln::store {
namespace {

using manifest::ownership_objection;

constexpr mode_t written_by_others = S_IWGRP | S_IWOTH;

/// Whoever may write the folder could create a journal there. A journal may also be older than the folder's present
/// mode.
std::string surroundings_objection(const std::filesystem::path& path, uid_t owner) {
  struct stat status {};
  const auto folder = path.parent_path();
  if (stat(folder.c_str(), &status) == 0)
    if (auto objection = ownership_objection("its folder", folder, status, owner); !objection.empty()) return objection;
  auto journal = path;
  journal += "-journal";
  if (lstat(journal.c_str(), &status) != 0) return {};
  if (!S_ISREG(status.st_mode))
    return fmt::format("its journal '{}' is not a regular file; remove it", journal.string());
  return ownership_objection("its journal", journal, status, owner);
}

/// Returns why the file itself is not trusted, or an empty string. Fills `status` if the file exists.
std::string own_objection(const std::filesystem::path& path, struct stat& status) {
  if (lstat(path.c_str(), &status) != 0) return {};
  if (S_ISLNK(status.st_mode)) return "it is a symbolic link; name the file that it leads to";
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  if (status.st_nlink > 1)
    return fmt::format("it has {} names (hard links); copy it to a file of its own", status.st_nlink);
  if ((status.st_mode & written_by_others) != 0) return ownership_objection("", path, status);
  return {};
}

/// Returns the nearest existing folder above.
std::filesystem::path nearest_above(std::filesystem::path folder) {
  while (is_missing(folder) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

/// Returns false, and sets errno, when the folder cannot be created. A new folder is synced, so it survives a loss of
/// power.
bool make_private_folder(const std::filesystem::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0) return errno == EEXIST;
  const int parent = open(folder.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent < 0) return true;
  fsync(parent);
  close(parent);
  return true;
}

}  // namespace

std::string folder_objection(const std::filesystem::path& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return {};
  return ownership_objection("its folder", folder, status);
}

std::string op_objection(const std::filesystem::path& folder) {
  const auto objection = [](std::string_view what, const std::filesystem::path& path, mode_t passes) -> std::string {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0 || (status.st_mode & S_IWOTH) == 0 || (status.st_mode & passes) != 0)
      return {};
    return fmt::format("{} '{}' can be written by all users (mode {:04o}); run: chmod o-w '{}'", what, path.string(),
                       status.st_mode & 07777U, path.string());
  };
  if (auto found = objection("its folder", folder, 0); !found.empty()) return found;
  // In a folder such as /tmp nobody else can put another op in this one's place.
  if (auto found = objection("the folder above it", folder.parent_path(), S_ISVTX); !found.empty()) return found;
  std::error_code failure;
  for (std::filesystem::directory_iterator each(folder, failure), end; !failure && each != end; each.increment(failure))
    if (auto found = objection("its file", each->path(), 0); !found.empty()) return found;
  return {};
}

std::string secret_objection(const std::filesystem::path& file) {
  struct stat status {};
  constexpr mode_t others = S_IRWXG | S_IRWXO;
  if (stat(file.c_str(), &status) != 0 || (status.st_mode & others) == 0) return {};
  return fmt::format(
      "the private key '{}' can be read or written by others (mode {:04o}): they may sign in your name; run: "
      "chmod go-rwx '{}', and make a new key if somebody else used this machine",
      file.string(), status.st_mode & 07777U, file.string());
}

std::filesystem::path literal_path(const std::filesystem::path& path) {
  if (path.empty() || !path.has_filename())
    throw Error(ErrorKind::bad_input, fmt::format("'{}' does not name a file", path.string()));
  if (path.native().find('\0') != std::string::npos)
    throw Error(ErrorKind::bad_input, "a file's path holds a NUL character");
  std::error_code failure;
  const auto absolute = std::filesystem::absolute(path, failure);
  if (failure)
    throw Error(ErrorKind::io,
                fmt::format("the path '{}' cannot be made absolute: {}", path.string(), failure.message()));
  const auto folder = std::filesystem::weakly_canonical(absolute.parent_path(), failure);
  return (failure ? absolute.parent_path() : folder) / absolute.filename();
}

std::filesystem::path readable_path(const std::filesystem::path& path) {
  const auto literal = literal_path(path);
  std::error_code failure;
  const auto resolved = std::filesystem::canonical(literal, failure);
  return failure ? literal : resolved;
}

std::string file_objection(const std::filesystem::path& path) {
  struct stat status {};
  if (auto objection = own_objection(path, status); !objection.empty()) return objection;
  return surroundings_objection(path, status.st_uid);
}

std::string overlay_objection(const std::filesystem::path& path) {
  struct stat status {};
  if (auto objection = own_objection(path, status); !objection.empty()) return objection;
  if (lstat(path.c_str(), &status) == 0)
    if (auto objection = ownership_objection("", path, status); !objection.empty()) return objection;
  return surroundings_objection(path, 0);
}

Trust owner_trust(const std::filesystem::path& path) {
  std::error_code failure;
  const auto resolved = std::filesystem::canonical(path, failure);
  struct stat status {};
  if (failure || stat(resolved.c_str(), &status) != 0) return {false, "its owner cannot be read"};
  if (auto objection = ownership_objection("", resolved, status); !objection.empty())
    return {false, std::move(objection)};
  if (auto objection = folder_objection(resolved.parent_path()); !objection.empty())
    return {false, std::move(objection)};
  return {true, fmt::format("it and its folder belong to {} and can be written by nobody else",
                            status.st_uid == 0 ? "root" : "this user")};
}

Identity identity_of(const std::filesystem::path& path) noexcept {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

Stamp stamp_of(const std::filesystem::path& path) noexcept {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return {{status.st_dev, status.st_ino}, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

bool is_missing(const std::filesystem::path& path) noexcept {
  struct stat status {};
  return lstat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

void create_private_folders(const std::filesystem::path& folder) {
  if (folder.empty() || make_private_folder(folder)) return;
  if (errno == ENOENT && folder.has_relative_path()) {
    create_private_folders(folder.parent_path());
    if (make_private_folder(folder)) return;
  }
  const int reason = errno;
  const bool refused = reason == EACCES || reason == EPERM || reason == EROFS;
  throw Error(refused ? ErrorKind::no_permission : ErrorKind::io,
              fmt::format("the folder '{}' cannot be made: {}", folder.string(),
                          error_in_words(reason, nearest_above(folder))));
}

FolderLock::FolderLock(const std::filesystem::path& folder)
    : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  constexpr auto step = std::chrono::milliseconds(10);
  constexpr int tries = 500;
  for (int attempt = 0; descriptor_ >= 0 && attempt < tries; ++attempt) {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR)) return;
    std::this_thread::sleep_for(step);
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

void FolderLock::sync() const noexcept {
  if (descriptor_ >= 0) fsync(descriptor_);
}

}  // namespace kiln::store
