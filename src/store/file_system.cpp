#include "store/file_system.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "store/custody.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

struct Kind {
  std::uint32_t magic;
  std::string_view name;
};

// f_type of statfs(2), from linux/magic.h, and from coreutils' stat.c for file systems outside the kernel.
constexpr std::array remote_kinds = {Kind{0x00006969, "NFS"},   Kind{0x0000517b, "SMB"},  Kind{0xff534d42, "CIFS"},
                                     Kind{0xfe534d42, "SMB2"},  Kind{0x65735546, "FUSE"}, Kind{0x5346414f, "AFS"},
                                     Kind{0x6b414653, "AFS"},   Kind{0x00c36400, "Ceph"}, Kind{0x0bd00bd0, "Lustre"},
                                     Kind{0x47504653, "GPFS"},  Kind{0x01021997, "9P"},   Kind{0x73757245, "Coda"},
                                     Kind{0x7461636f, "OCFS2"}, Kind{0x01161970, "GFS2"}, Kind{0x19830326, "BeeGFS"}};

/// mkdir also succeeds with EEXIST when another user created a link or folder there, since all may write /var/tmp.
bool is_own_folder(const fs::path& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace

std::string_view remote_file_system(const fs::path& path) noexcept {
  struct statfs status {};
  fs::path place = path;
  while (statfs(place.c_str(), &status) != 0) {
    if (!place.has_relative_path()) return {};
    place = place.parent_path();
  }
  for (const Kind& kind : remote_kinds)
    if (kind.magic == static_cast<std::uint32_t>(status.f_type)) return kind.name;
  return {};
}

fs::path local_stand_in(const fs::path& overlay) {
  const fs::path folder = fmt::format("/var/tmp/kiln-{}", geteuid());
  if (const auto kind = remote_file_system(folder); !kind.empty())
    throw Error(ErrorKind::io,
                fmt::format("'{}' is on {} as well; name an overlay on a local disk", folder.string(), kind));
  create_private_folders(folder);
  if (!is_own_folder(folder))
    throw Error(ErrorKind::no_permission,
                fmt::format("'{}' is not a folder of this user alone; remove it, or name an overlay on a local disk",
                            folder.string()));
  const auto digest = manifest::Hasher().field(std::string_view(overlay.native())).finish();
  constexpr std::size_t enough = 16;  // hexadecimal digits
  return folder / fmt::format("overlay-{}.kiln", manifest::to_hex(digest).substr(0, enough));
}

std::string error_in_words(int error, const std::filesystem::path& folder) {
  if (error == ENOSPC || error == EDQUOT)
    if (auto full = full_in_words(folder); !full.empty()) return full;
  return std::strerror(error);
}

std::string full_in_words(const std::filesystem::path& folder) {
  struct statvfs status {};
  // A file system that makes inodes as it needs them has a total of 0.
  if (statvfs(folder.c_str(), &status) == 0 && status.f_files > 0 && status.f_favail == 0)
    return "no inodes are left on its file system, so that no file can be made there; remove some files (df -i counts "
           "them)";
  const int made = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (made >= 0) close(made);
  if (made >= 0 || (errno != ENOSPC && errno != EDQUOT)) return {};
  return "the disk is full, or this user's share of it; free some space there";
}

}  // namespace kiln::store
