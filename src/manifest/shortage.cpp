#include "manifest/shortage.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kiln::manifest {
namespace {

std::string value_of(__rlimit_resource_t limit) {
  rlimit found{};
  if (getrlimit(limit, &found) != 0 || found.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(found.rlim_cur);
}

std::string limits_of(int error) {
  switch (error) {
    case EAGAIN:
      return fmt::format(
          "threads and processes are limited by RLIMIT_NPROC (ulimit -u), which is {}, the control group's pids.max "
          "and kernel.threads-max; raise them, or run fewer",
          value_of(RLIMIT_NPROC));
    case EMFILE:
      return fmt::format("files of a process are limited by RLIMIT_NOFILE (ulimit -n), which is {}; raise it",
                         value_of(RLIMIT_NOFILE));
    case ENFILE: return "files of the machine are limited by fs.file-max; raise it";
    case ENOMEM:
      return "memory is limited by the machine, the control group's memory.max and RLIMIT_AS (ulimit -v), mappings by "
             "vm.max_map_count; raise them, or use less";
    default: return {};
  }
}

}  // namespace

std::string refusal_text(int error) {
  const std::string limits = limits_of(error);
  return limits.empty() ? std::string(std::strerror(error)) : fmt::format("{}: {}", std::strerror(error), limits);
}

bool is_shortage(int error) noexcept {
  return error == EAGAIN || error == EMFILE || error == ENFILE || error == ENOMEM;
}

int descriptor_shortage() noexcept {
  const int probe = open("/", O_PATH | O_CLOEXEC);
  if (probe < 0) return is_shortage(errno) ? errno : 0;
  close(probe);
  return 0;
}

}  // namespace kiln::manifest
