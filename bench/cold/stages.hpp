// Moments on the way of one process, on a clock that every process reads alike.
#pragma once

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <string_view>

namespace kiln::bench {

/// CLOCK_MONOTONIC counts from the machine's start, so a parent's reading is comparable with its child's.
inline std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Says each moment when it is reached, as "STAGE NANOSECONDS" a line, counted from when the process was asked for.
class Stages {
 public:
  explicit Stages(std::int64_t began_ns) : began_ns_(began_ns) {}
  void reached(std::string_view stage) {
    const std::int64_t ns = now_ns() - began_ns_;
    fmt::print("{} {}\n", stage, ns);
  }
  /// Pages that this process has touched for the first time, or again after the kernel took them: each is a call of the kernel.
  [[nodiscard]] static std::int64_t page_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  }

 private:
  std::int64_t began_ns_;
};

}  // namespace kiln::bench
