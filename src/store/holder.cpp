#include "store/holder.hpp"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

/// proc(5): "pid (comm) state ppid ... starttime". `comm` may hold any characters, so fields count from the last ')'.
struct ProcessLine {
  char state = 0;
  std::int64_t start = 0;
};
std::optional<ProcessLine> line_of_process(std::int64_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  const auto after_name = line.rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(after_name + 1));
  ProcessLine found;
  std::string skipped;
  fields >> found.state;
  constexpr int fields_before_start = 18;  // ppid (4) to itrealvalue (21)
  for (int field = 0; field < fields_before_start; ++field) fields >> skipped;
  if (!(fields >> found.start)) return std::nullopt;
  return found;
}

/// A line of /proc/locks (proc_locks(5)), or of a descriptor's fdinfo behind "lock:". The lock of an open file
/// description has no process: "1: OFDLCK  ADVISORY  WRITE -1 fe:00:10952811 1073741825 1073741825".
struct WriteLock {
  std::string kind, file;
  std::int64_t pid = 0;
};
std::optional<WriteLock> write_lock_of(const std::string& line) {
  std::istringstream fields(line);
  std::string number, strictness, access;
  WriteLock lock;
  if (!(fields >> number >> lock.kind >> strictness >> access >> lock.pid >> lock.file) || access != "WRITE")
    return std::nullopt;
  return lock;
}

bool holds_write_lock(const fs::path& descriptor_info, std::string_view file) {
  constexpr std::string_view head = "lock:";
  std::ifstream info(descriptor_info);
  for (std::string line; std::getline(info, line);)
    if (line.starts_with(head))
      if (const auto lock = write_lock_of(line.substr(head.size())); lock && lock->file == file) return true;
  return false;
}

/// Returns the names in a folder of /proc; empty where it is closed to this user, or its process ended.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    names.push_back(each->path().filename().native());
  return names;
}

/// Returns another process with a descriptor of this file that holds a write lock, or 0. Asks for nothing about files
/// of other processes: stat() waits for a file system that does not answer.
std::int64_t holder_of_description(std::string_view file) {
  for (const std::string& name : names_in("/proc")) {
    const auto pid = std::strtoll(name.c_str(), nullptr, 10);
    if (pid <= 0 || pid == getpid()) continue;
    const fs::path descriptors = fs::path("/proc") / name / "fdinfo";
    for (const std::string& number : names_in(descriptors))
      if (holds_write_lock(descriptors / number, file)) return pid;
  }
  return 0;
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<std::int64_t> start_of_process(std::int64_t pid) {
  const auto found = line_of_process(pid);
  if (!found || found->state == 'Z' || found->state == 'X') return std::nullopt;
  return found->start;
}

std::string unique_holder() {
  static std::atomic<std::uint64_t> made{0};  // for a system without random numbers
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) random = 0;
  return fmt::format("{}/{}/{:016x}", getpid(), made.fetch_add(1), random);
}

std::string process_in_words(std::int64_t pid) {
  std::string words = fmt::format("process {}", pid);
  if (const auto name = first_line(fmt::format("/proc/{}/comm", pid)); !name.empty())
    words += fmt::format(" ({})", name);
  const auto found = line_of_process(pid);
  if (found && (found->state == 'T' || found->state == 't')) words += ", which is stopped";
  return words;
}

std::string locker_in_words(const std::filesystem::path& path) {
  const char* const unknown = "another process or another copy of Kiln in this one";
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return unknown;
  const auto wanted = fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");
  bool by_description = false;
  for (std::string line; std::getline(locks, line);) {
    const auto lock = write_lock_of(line);
    if (!lock || lock->file != wanted) continue;
    if (lock->pid > 0 && lock->pid != getpid()) return process_in_words(lock->pid);
    if (lock->kind == "OFDLCK") by_description = true;
  }
  const auto pid = by_description ? holder_of_description(wanted) : 0;
  return pid > 0 ? process_in_words(pid) : unknown;
}

}  // namespace kiln::store
