// What a row of the fault matrix tried, and what it could not try. bench/tally.py compares it with bench/results/faults.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace kiln::faults {

/// Appends a line to the file that KILN_FAULT_TALLY names, in one write: tests run side by side. Does nothing when it is not set.
inline void append_to_tally(const std::string& line) {
  const char* path = std::getenv("KILN_FAULT_TALLY");
  if (path == nullptr || *path == '\0') return;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  [[maybe_unused]] const auto written = write(file, line.data(), line.size());
  close(file);
}

/// "ROW<TAB>CASES<TAB>WHAT"
inline void tally(int row, std::int64_t cases, std::string_view what) {
  append_to_tally(std::to_string(row) + '\t' + std::to_string(cases) + '\t' + std::string(what) + '\n');
}

}  // namespace kiln::faults
