// What a row of the fault matrix tried, counted where the figures in README come from.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace kiln::faults {

/// Appends "ROW<TAB>CASES<TAB>WHAT" to the file that KILN_FAULT_TALLY names, in one write: tests run side by side. Does
/// nothing when it is not set.
inline void tally(int row, std::int64_t cases, std::string_view what) {
  const char* path = std::getenv("KILN_FAULT_TALLY");
  if (path == nullptr || *path == '\0') return;
  const std::string line = std::to_string(row) + '\t' + std::to_string(cases) + '\t' + std::string(what) + '\n';
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  [[maybe_unused]] const auto written = write(file, line.data(), line.size());
  close(file);
}

}  // namespace kiln::faults
