#include "cli/report/facts.hpp"

#include <fmt/chrono.h>

#include "cli/record_facts.hpp"
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
  const double cost_ns = record.at_edge().cost_ns;
  return record.baseline_ns > 0 && cost_ns > 0 ? record.baseline_ns / cost_ns : 0.0;
}

std::string winner_of(const store::Record& record) {
  const std::size_t others = configs_of(record) - 1;
  return clipped(config_of(record.at_edge())) + (others > 0 ? fmt::format(" and {} more", others) : "");
}

std::string words_of(const TimedSizes& timed, std::string_view where) {
  std::string words = fmt::format("{}: {}", where, time_of(timed.cost_ns));
  if (timed.baseline_ns > 0)
    words += fmt::format(", default {} ({})", time_of(timed.baseline_ns), ratio_of(timed.baseline_ns / timed.cost_ns));
  return words + " · " + clipped(timed.config);
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
