#include "cli/report/facts.hpp"

#include <fmt/chrono.h>

#include "cli/report/html.hpp"
#include "cli/units.hpp"

namespace kiln::cli::report {

std::string time_of(double ns) {
  std::string text = format_time(ns);
  if (const std::size_t unit = text.find("us"); unit != std::string::npos) text.replace(unit, 1, "µ");
  return text;
}

std::string ratio_of(double ratio) { return ratio > 0 ? fmt::format("{:.2f}×", ratio) : "–"; }

double gain_of(const store::Record& record) {
  return record.baseline_ns > 0 && record.cost_ns > 0 ? record.baseline_ns / record.cost_ns : 0.0;
}

std::string winner_of(const store::Record& record) { return clipped(record.implementation + " " + record.config); }

std::string words_of(const Entry& entry, std::string_view where) {
  const store::Record& record = entry.record;
  std::string words = fmt::format("{}: {}", where, time_of(record.cost_ns));
  if (const double gain = gain_of(record); gain > 0)
    words += fmt::format(", default {} ({})", time_of(record.baseline_ns), ratio_of(gain));
  return words + " · " + winner_of(record);
}

std::string date_of(std::int64_t unix_seconds) {
  constexpr std::int64_t year_9999 = 253402300799;
  if (unix_seconds <= 0 || unix_seconds > year_9999) return "unknown";
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

std::string_view to_string(engine::Standing standing) noexcept {
  switch (standing) {
    case engine::Standing::present: return "current";
    case engine::Standing::stale: return "stale";
    case engine::Standing::unknown: return "unknown op";
  }
  return "?";
}

}  // namespace kiln::cli::report
