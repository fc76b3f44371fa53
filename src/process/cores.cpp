#include "process/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace kiln::process {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::string text;
  std::ifstream in(file);
  std::getline(in, text, '\0');
  return text;
}

/// Of "QUOTA PERIOD", both in microseconds of processor time. 0 for "max PERIOD", or without a file.
int cores_of_group(const fs::path& group) {
  std::ifstream in(group / "cpu.max");
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min((quota + period - 1) / period, 1e6));
}

/// Of the group of version 2, which /proc/self/cgroup gives as "0::/PATH".
fs::path group_of(std::string_view membership) {
  const std::size_t begin = membership.starts_with("0::/") ? 0 : membership.find("\n0::/");
  if (begin == std::string_view::npos) return {};
  const std::string_view path = membership.substr(membership.find('/', begin) + 1);
  return fs::path(path.substr(0, path.find('\n'))).lexically_normal();
}

}  // namespace

int cores_of_groups(std::string_view membership, const fs::path& root) {
  int least = cores_of_group(root);
  fs::path group = root;
  for (const fs::path& name : group_of(membership)) {
    group /= name;
    const int cores = cores_of_group(group);
    if (cores > 0) least = least > 0 ? std::min(least, cores) : cores;
  }
  return least;
}

int usable_cores() noexcept {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cpu_set_t set; sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  try {
    const int of_groups = cores_of_groups(text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
    if (of_groups > 0) cores = std::min(cores, of_groups);
  } catch (...) {  // without memory for a path: the processors that are there
  }
  return std::max(cores, 1);
}

}  // namespace kiln::process
