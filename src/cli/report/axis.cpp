#include "cli/report/axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace kiln::cli::report {

void Interval::add(double value) noexcept {
  if (!(value > 0) || !std::isfinite(value)) return;
  low = empty() ? value : std::min(low, value);
  high = std::max(high, value);
}

LogAxis::LogAxis(Interval range, double from, double to)
    : range_(range), from_(from), scale_((to - from) / (std::log2(range.high) - std::log2(range.low))) {}

double LogAxis::at(double value) const { return from_ + (std::log2(value) - std::log2(range_.low)) * scale_; }

std::vector<Tick> decimal_ticks(const Interval& range) {
  const double decades = std::log10(range.high) - std::log10(range.low);
  const auto first = static_cast<int>(std::floor(std::log10(range.low)));
  const auto last = static_cast<int>(std::ceil(std::log10(range.high)));
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  std::vector<Tick> ticks;
  for (int exponent = first; exponent <= last; exponent += stride) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit > 1 && (stride > 1 || decades > 4)) continue;
      const double value = digit * std::pow(10.0, exponent);
      const bool named = digit == 1 || decades < 1.7;
      if (value >= range.low && value <= range.high) ticks.push_back({value, named});
    }
  }
  return ticks;
}

std::vector<Tick> binary_ticks(const Interval& range, int most) {
  const auto first = static_cast<int>(std::ceil(std::log2(range.low) - 1e-9));
  const auto last = static_cast<int>(std::floor(std::log2(range.high) + 1e-9));
  const int stride = std::max(1, (last - first + most) / most);
  std::vector<Tick> ticks;
  for (int exponent = first; exponent <= last; exponent += stride) ticks.push_back({std::exp2(exponent), true});
  return ticks;
}

std::string short_time(double ns) {
  if (ns < 1e3) return fmt::format("{:.3g} ns", ns);
  if (ns < 1e6) return fmt::format("{:.3g} µs", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.3g} ms", ns / 1e6);
  return fmt::format("{:.3g} s", ns / 1e9);
}

std::string short_length(double length) {
  constexpr double kibi = 1024, mebi = kibi * kibi, gibi = kibi * mebi;
  if (length < 64 * kibi) return fmt::format("{:.0f}", length);
  if (length < mebi) return fmt::format("{:g}Ki", length / kibi);
  if (length < gibi) return fmt::format("{:g}Mi", length / mebi);
  return fmt::format("{:.4g}Gi", length / gibi);
}

std::string short_rate(double per_second, const char* unit) {
  constexpr std::array<std::pair<double, const char*>, 5> prefixes = {
      {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [size, prefix] : prefixes)
    if (per_second >= size * 0.9995) return fmt::format("{:.4g} {}{}/s", per_second / size, prefix, unit);
  return fmt::format("{:.3g} {}/s", per_second, unit);
}

std::string short_number(double value) { return fmt::format("{:.4g}", value); }

}  // namespace kiln::cli::report
