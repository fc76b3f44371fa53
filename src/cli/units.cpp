#include "cli/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace kiln::cli {
namespace {

/// Four significant digits, as many as a timing is worth.
std::string four_digits(double value) {
  const int decimals = value >= 999.5 ? 0 : value >= 99.95 ? 1 : value >= 9.995 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::string format_time(double ns) {
  if (!std::isfinite(ns)) return "-";
  if (ns < 999.5) return fmt::format("{:.0f} ns", ns);
  if (ns < 999.5e3) return fmt::format("{} us", four_digits(ns / 1e3));
  if (ns < 999.5e6) return fmt::format("{} ms", four_digits(ns / 1e6));
  return fmt::format("{} s", four_digits(ns / 1e9));
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> units = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < units.size(); ++unit) value /= 1000;
  return fmt::format("{:.{}f} {}", value, value < 9.95 ? 1 : 0, units[unit]);
}

std::string format_bandwidth(double bytes_per_second) {
  if (!(bytes_per_second > 0) || !std::isfinite(bytes_per_second)) return "-";
  const double gigabytes = bytes_per_second / 1e9;
  return fmt::format("{:.{}f} GB/s", gigabytes, gigabytes < 9.95 ? 2 : gigabytes < 99.5 ? 1 : 0);
}

std::string format_throughput(double flops_per_second) {
  if (!(flops_per_second > 0) || !std::isfinite(flops_per_second)) return "-";
  if (flops_per_second < 1e12) return fmt::format("{:.1f} GFLOP/s", flops_per_second / 1e9);
  return fmt::format("{:.1f} TFLOP/s", flops_per_second / 1e12);
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string format_ratio(double ratio) {
  return std::isfinite(ratio) && ratio > 0 ? fmt::format("{:.2f}x", ratio) : "-";
}

std::string format_wait(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e9)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace kiln::cli
