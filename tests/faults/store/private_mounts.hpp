// Small disks that only one process sees.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kiln::store {

inline constexpr int no_namespace = 9;  // a child's exit status

inline void write_line(const char* path, const std::string& line) { std::ofstream(path) << line; }

/// A mount namespace of this process alone, for which a user without rights needs a user namespace.
inline bool enter_private_namespace() {
  const auto user = geteuid();
  const auto group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    write_line("/proc/self/setgroups", "deny");
    write_line("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
    write_line("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

inline bool mount_disk(const std::filesystem::path& folder, const char* size, unsigned long flags = 0) {
  return mount("none", folder.c_str(), "tmpfs", flags, (std::string("mode=0700,size=") + size).c_str()) == 0;
}

}  // namespace kiln::store
