#include "cli/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include "kiln/error.hpp"
#include "manifest/text.hpp"

namespace kiln::cli {
namespace {

/// Formats four significant digits.
std::string four_digits(double value) {
  const int decimals = value >= 999.5 ? 0 : value >= 99.95 ? 1 : value >= 9.995 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

struct Unit {
  std::string_view name;
  double size = 1;
};

/// Parses a decimal number and a unit as an integer number of the smallest unit. Throws Error(bad_input).
std::int64_t parse_quantity(std::string_view text, std::span<const Unit> units, std::string_view what,
                            std::string_view example) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& each) { return each.name == rest; });
  constexpr double most = 9e18;
  if (error == std::errc{} && unit != units.end() && number >= 0 && number * unit->size < most)
    return static_cast<std::int64_t>(std::llround(number * unit->size));
  throw Error(ErrorKind::bad_input, fmt::format("{} is {}, expected a number and its unit, such as {}", what,
                                                manifest::quote(text), example));
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

std::string format_cuda(int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); }

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

std::string counted(std::int64_t count, std::string_view what) {
  const bool hisses = what.ends_with("ch") || what.ends_with("s");  // launches, processes
  return fmt::format("{} {}{}", format_count(count), what, count == 1 ? "" : hisses ? "es" : "s");
}

std::string_view verb(std::int64_t count, std::string_view one, std::string_view more) {
  return count == 1 ? one : more;
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

std::int64_t parse_bytes(std::string_view text, std::string_view what) {
  constexpr std::array<Unit, 8> units = {{{"B", 1},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12},
                                          {"kiB", 1 << 10},
                                          {"MiB", 1 << 20},
                                          {"GiB", 1 << 30}}};
  return parse_quantity(text, units, what, "500MB or 2GiB");
}

std::int64_t parse_seconds(std::string_view text, std::string_view what) {
  constexpr std::array<Unit, 5> units = {{{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}}};
  return parse_quantity(text, units, what, "90d, 12h or 30min");
}

}  // namespace kiln::cli
