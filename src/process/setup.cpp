#include "process/setup.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <mutex>
#include <stop_token>
#include <system_error>

namespace kiln::process {
namespace {

constexpr std::chrono::milliseconds check_every{10};
constexpr std::int64_t slack = std::int64_t{512} << 20;  // bytes that a task can allocate between two checks

}  // namespace

void hold_standard_descriptors() noexcept {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0) [[maybe_unused]]
      const int held = open("/", O_PATH);  // open() returns the lowest free descriptor, which is this one
}

void close_inherited_descriptors() noexcept {
  constexpr unsigned first = STDERR_FILENO + 1;
#ifdef SYS_close_range
  if (syscall(SYS_close_range, first, ~0U, 0U) == 0) return;
#endif
  // Before Linux 5.9.
  DIR* listed = opendir("/proc/self/fd");
  if (listed == nullptr) return;
  while (const dirent* each = readdir(listed)) {
    const int descriptor = std::atoi(each->d_name);
    if (descriptor >= static_cast<int>(first) && descriptor != dirfd(listed)) close(descriptor);
  }
  closedir(listed);
}

void leave_unnamed_directory() noexcept {
  constexpr std::size_t nvrtc_takes = 2000;  // bytes, in NVRTC 13.0, which uses them also where getcwd(3) refuses
  std::array<char, nvrtc_takes> path{};
  if (getcwd(path.data(), path.size()) != nullptr) return;
  [[maybe_unused]] const int left = chdir("/");
}

std::int64_t private_bytes() noexcept {
  std::ifstream pages("/proc/self/statm");
  std::int64_t field = 0;
  for (int i = 0; i < 6; ++i) pages >> field;  // size resident shared text lib data
  return pages ? field * sysconf(_SC_PAGESIZE) : 0;
}

MemoryLimit::MemoryLimit(std::int64_t bytes)
    : most_(private_bytes() + std::min(bytes, std::numeric_limits<std::int64_t>::max() / 2)) {
  // Relative to the present size: a sanitizer's shadow memory alone is larger than any limit.
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(most_ + slack));
  setrlimit(RLIMIT_DATA, &limit);
}

std::jthread MemoryLimit::watch() const try {
  return std::jthread([most = most_](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      if (private_bytes() > most) _exit(memory_limit_status);
      never.wait_for(lock, stop, check_every, [] { return false; });
    }
  });
} catch (const std::system_error&) {
  return {};
}

void forbid_core_files() noexcept {
  constexpr rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
}

void take_low_priority() noexcept { setpriority(PRIO_PROCESS, 0, 19); }

}  // namespace kiln::process
