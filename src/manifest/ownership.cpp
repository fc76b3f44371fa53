#include "manifest/ownership.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

#include "manifest/environment.hpp"

namespace kiln::manifest {
namespace {

constexpr mode_t written_by_others = S_IWGRP | S_IWOTH;

bool is_trusted(uid_t user, uid_t owner) {
  if (user == 0 || user == owner) return true;
  // File capabilities and setgid leave the user's id as it was.
  const bool may_be_hostile = has_raised_rights() && geteuid() == getuid();
  return user == geteuid() && !may_be_hostile;
}

std::string objection_to(std::string_view what, const std::filesystem::path& path, uid_t owner) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return fmt::format("{} '{}' cannot be looked at", what, path.string());
  // Debian and Ubuntu give a user a group of the same number, without other members, and umask 002 with it.
  if (status.st_gid == status.st_uid && status.st_uid != 0) status.st_mode &= ~mode_t{S_IWGRP};
  return ownership_objection(what, path, status, owner);
}

}  // namespace

std::string ownership_objection(std::string_view what, const std::filesystem::path& path, const struct stat& status,
                                uid_t owner) {
  const std::string named = fmt::format("{}{}'{}'", what, what.empty() ? "" : " ", path.string());
  if (!is_trusted(status.st_uid, owner))
    return fmt::format("{} belongs to user {}, {}; copy what it holds to a place of your own", named, status.st_uid,
                       status.st_uid == geteuid() ? "who started this program, which has rights that the user has not"
                                                  : "not to this user or root");
  if ((status.st_mode & written_by_others) == 0) return {};
  const bool is_shared_on_purpose = (status.st_mode & S_ISVTX) != 0;  // such as /tmp
  const auto what_to_do =
      is_shared_on_purpose ? "use a folder of your own" : fmt::format("run: chmod go-w '{}'", path.string());
  return fmt::format("{} can be written by others (mode {:04o}); {}", named, status.st_mode & 07777U, what_to_do);
}

std::string program_objection(const std::filesystem::path& program, uid_t owner) {
  std::error_code failure;
  const std::filesystem::path resolved = std::filesystem::canonical(program, failure);
  if (failure) return fmt::format("it cannot be found: {}", failure.message());
  if (auto objection = objection_to("its folder", program.parent_path(), owner); !objection.empty()) return objection;
  if (auto objection = objection_to("", resolved, owner); !objection.empty()) return objection;
  return objection_to("its folder", resolved.parent_path(), owner);
}

}  // namespace kiln::manifest
