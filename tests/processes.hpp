// The processes that run a program, seen from outside.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace kiln::test {

/// Those that were run by this path: make it a link of the test's own, which no other process has.
inline std::vector<pid_t> processes_of(const std::filesystem::path& program) {
  std::vector<pid_t> found;
  std::error_code ended;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ended)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::string first;
    std::getline(file, first, '\0');
    if (first == program.string()) found.push_back(std::stoi(name));
  }
  return found;
}

/// Waits until there are `count` of them, half a minute at most: how many there are then.
inline std::size_t wait_for_processes(const std::filesystem::path& program, std::size_t count) {
  for (int waits = 0; waits < 1500 && processes_of(program).size() != count; ++waits)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return processes_of(program).size();
}

inline void signal_processes(const std::filesystem::path& program, int signal) {
  for (const pid_t process : processes_of(program)) kill(process, signal);
}

}  // namespace kiln::test
