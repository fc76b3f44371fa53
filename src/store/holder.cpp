#include "store/holder.hpp"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>

namespace kiln::store {
namespace {

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
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  const auto wanted = fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    // "1: POSIX  ADVISORY  WRITE 24001 fe:00:10952811 1073741825 1073741825"
    std::istringstream fields(line);
    std::string number, kind, strictness, access, file;
    std::int64_t pid = 0;
    if (fields >> number >> kind >> strictness >> access >> pid >> file && access == "WRITE" && file == wanted &&
        pid > 0 && pid != getpid())
      return process_in_words(pid);
  }
  return {};
}

}  // namespace kiln::store
