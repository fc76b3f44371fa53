#include "cli/replay_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "cli/build.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t shown = 20;  // lines of wrong or missing problems

double at_quantile(std::vector<double> values, double quantile) {
  const auto rank = static_cast<std::ptrdiff_t>(std::lround(quantile * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<std::size_t>(rank)];
}

std::string sentence(const Counts& counts) {
  return fmt::format("{}, {} of them distinct, in {}{}", counted(counts.problems, "problem"),
                     format_count(counts.distinct), counted(counts.buckets, "bucket"),
                     counts.empty == 0
                         ? ""
                         : fmt::format("; {} with a size of 0 {} nothing", counted(counts.empty, "more line"),
                                       verb(counts.empty, "launches", "launch")));
}

/// Host times of the launches of one origin.
struct HostTimes {
  std::string origin;
  std::size_t launches = 0;
  double median_ns = 0, p99_ns = 0, total_ns = 0;
};

std::vector<HostTimes> host_times(const LaunchReport& report) {
  std::vector<HostTimes> times;
  for (std::size_t i = 0; i < origin_count; ++i) {
    const std::vector<double>& each = report.host_ns[i];
    times.push_back({std::string(to_string(static_cast<Origin>(i))), each.size()});
    if (each.empty()) continue;
    times.back().median_ns = at_quantile(each, 0.5);
    times.back().p99_ns = at_quantile(each, 0.99);
    times.back().total_ns = std::accumulate(each.begin(), each.end(), 0.0);
  }
  return times;
}

double total_ns(const std::vector<HostTimes>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0,
                         [](double sum, const HostTimes& each) { return sum + each.total_ns; });
}

std::vector<std::pair<const char*, std::int64_t>> by_reason(const Misses& misses) {
  return {{"absent", misses.absent},         {"unusable", misses.unusable}, {"damaged", misses.damaged},
          {"unreadable", misses.unreadable}, {"no_cubin", misses.no_cubin}, {"refused_cubin", misses.refused_cubin}};
}

Json json_of(const Misses& misses) {
  Json json = Json::object();
  for (const auto& [reason, count] : by_reason(misses)) json[reason] = count;
  return json;
}

void print_json_launches(const Counts& counts, const LaunchReport& report, const std::vector<HostTimes>& times) {
  Json by_origin = Json::object();
  for (const HostTimes& each : times)
    by_origin[each.origin] = {{"launches", each.launches},
                              {"host_median_ns", each.median_ns},
                              {"host_p99_ns", each.p99_ns},
                              {"host_total_ns", each.total_ns}};
  const Stats& stats = report.stats;
  print_json({{"event", "replayed"},
              {"build", build()},
              {"problems", counts.problems},
              {"distinct", counts.distinct},
              {"buckets", counts.buckets},
              {"empty", counts.empty},
              {"by_origin", by_origin},
              {"tunes", stats.tunes},
              {"compiles", stats.compiles},
              {"stale", stats.stale},
              {"constraint_fallbacks", stats.constraint_fallbacks},
              {"quarantined", stats.quarantined},
              {"misses", json_of(stats.misses)},
              {"host_ns", total_ns(times)},
              {"stalls", report.stalls},
              {"stall_ns", report.stall_ns},
              {"device_ns", report.device_ns},
              {"device_launches", report.device_launches}});
}

void print_text_launches(const Counts& counts, const LaunchReport& report, const std::vector<HostTimes>& times) {
  Table origins({"answer from", "> launches", "> host median", "> host p99", "> host total"});
  for (const HostTimes& each : times)
    if (each.launches > 0)
      origins.row({each.origin, format_count(static_cast<std::int64_t>(each.launches)), format_time(each.median_ns),
                   format_time(each.p99_ns), format_time(each.total_ns)});
  const Stats& stats = report.stats;
  Table totals({"", ""});
  totals.row({"tunes", format_count(stats.tunes)});
  totals.row({"compiles", format_count(stats.compiles)});
  for (const auto& [reason, count] : by_reason(stats.misses))
    if (count > 0) totals.row({fmt::format("misses, {}", reason), format_count(count)});
  if (stats.stale > 0) totals.row({"stale records served", format_count(stats.stale)});
  if (stats.constraint_fallbacks > 0)
    totals.row(
        {"served by the default, as no config of the record is legal", format_count(stats.constraint_fallbacks)});
  if (stats.quarantined > 0) totals.row({"rows of the files that did not hold", format_count(stats.quarantined)});
  totals.row({"host time without stalls", format_time(total_ns(times) - report.stall_ns)});
  totals.row({"stalls", fmt::format("{} in {}: tunes, compiles and first loads", format_time(report.stall_ns),
                                    counted(report.stalls, "launch"))});
  totals.row({"device time", fmt::format("{} of {} without a stall", format_time(report.device_ns),
                                         counted(report.device_launches, "launch"))});
  print(fmt::format("{}\n\n{}\n{}", sentence(counts), origins.text(), totals.text()));
}

/// Returns what a launch without a record does under a policy that serves no fallback; else an empty string.
std::string_view done_instead(std::string_view policy) {
  return policy == "error" ? "an error" : policy == "tune" ? "would tune" : "";
}

/// Look-ups by origin; those without a fallback under the policy, and those that nothing legal can serve, are apart.
struct DryTotals {
  std::array<std::int64_t, origin_count> problems{}, buckets{};
  std::array<std::int64_t, answer::miss_kinds> misses{};
  std::int64_t unserved = 0, missing = 0, missing_problems = 0, without_cubin = 0, stale = 0;

  DryTotals(const DryReport& report, std::string_view policy) {
    const bool has_fallbacks = done_instead(policy).empty();
    for (const DryBucket& bucket : report.buckets) {
      const auto origin = static_cast<std::size_t>(bucket.origin);
      if (!bucket.is_hit() && !has_fallbacks) {
        missing_problems += bucket.problems;
      } else if (bucket.served) {
        problems[origin] += bucket.problems;
        ++buckets[origin];
      } else {
        unserved += bucket.problems;
      }
      if (bucket.miss) ++misses[static_cast<std::size_t>(*bucket.miss)];
      if (!bucket.is_hit())
        ++missing;
      else if (!bucket.cubin_in_files)
        ++without_cubin;
      if (bucket.stale) ++stale;
    }
  }
};

std::string what_serves(const DryBucket& bucket, std::string_view policy) {
  const std::string_view code = bucket.cubin_in_files ? "" : ", no machine code";
  if (bucket.is_hit()) return fmt::format("a record{}", code);
  if (const auto instead = done_instead(policy); !instead.empty()) return fmt::format("no record: {}", instead);
  if (!bucket.served) return "nothing legal";
  return fmt::format("no record, served by {}{}", to_string(bucket.origin), code);
}

void print_json_look_ups(const Target& target, const Counts& counts, const DryReport& report, std::string_view policy) {
  const DryTotals totals(report, policy);
  Json json{{"event", "looked_up"},
            {"launched", 0},
            {"device_class", target.facts.device_class()},
            {"policy", policy},
            {"problems", counts.problems},
            {"distinct", counts.distinct},
            {"buckets", counts.buckets},
            {"empty", counts.empty},
            {"by_origin", Json::object()},
            {"missing_buckets", totals.missing},
            {"missing_problems", totals.missing_problems},
            {"misses", Json::object()},
            {"unserved_problems", totals.unserved},
            {"stale_buckets", totals.stale},
            {"buckets_without_cubin", totals.without_cubin},
            {"not_ready", Json::array()},
            {"constraint_fallbacks", report.constraint_fallbacks},
            {"next", json_of(report.next)}};
  for (const DryBucket& bucket : report.buckets)
    if (!bucket.is_ready())
      json["not_ready"].push_back({{"op", bucket.op->name},
                                   {"bucket", manifest::to_string(*bucket.op, bucket.bucket)},
                                   {"answer", what_serves(bucket, policy)},
                                   {"problems", bucket.problems}});
  for (std::size_t i = 1; i < origin_count; ++i)
    json["by_origin"][std::string(to_string(static_cast<Origin>(i)))] = totals.problems[i];
  for (std::size_t i = 0; i < totals.misses.size(); ++i)
    if (totals.misses[i] > 0) json["misses"][std::string(to_string(static_cast<answer::Miss>(i)))] = totals.misses[i];
  print_json(json);
}

void print_not_ready(const DryReport& report, std::string_view policy) {
  std::size_t named = 0;
  for (const DryBucket& bucket : report.buckets) {
    if (bucket.is_ready() || named++ >= shown) continue;
    print(fmt::format("  {} {}: {}\n", bucket.op->name, manifest::display_text(*bucket.op, bucket.bucket),
                      what_serves(bucket, policy)));
  }
  if (named > shown) print(fmt::format("  ... and {} more\n", named - shown));
}

}  // namespace

Counts count(std::span<const TraceEntry> trace, std::int64_t empty) {
  std::set<std::pair<const manifest::Op*, std::string>> distinct, buckets;
  for (const TraceEntry& entry : trace) {
    distinct.emplace(entry.op, manifest::to_string(*entry.op, entry.problem));
    buckets.emplace(entry.op, manifest::to_string(*entry.op, manifest::bucket_of(*entry.op, entry.problem)));
  }
  return {static_cast<std::int64_t>(trace.size()), static_cast<std::int64_t>(distinct.size()),
          static_cast<std::int64_t>(buckets.size()), empty};
}

void print_launches(const Globals& globals, const Counts& counts, const LaunchReport& report) {
  const std::vector<HostTimes> times = host_times(report);
  globals.json ? print_json_launches(counts, report, times) : print_text_launches(counts, report, times);
}

void print_verified(const Globals& globals, const VerifyReport& report) {
  if (globals.json) {
    Json json{{"event", "verified"},
              {"build", build()},
              {"verified", report.verified},
              {"wrong", report.wrong.size()},
              {"wrong_results", Json::array()}};
    for (const WrongResult& wrong : report.wrong)
      json["wrong_results"].push_back({{"line", wrong.entry->line},
                                       {"op", wrong.entry->op->name},
                                       {"problem", manifest::to_string(*wrong.entry->op, wrong.entry->problem)},
                                       {"reason", wrong.reason}});
    print_json(json);
    return;
  }
  print(fmt::format("\nverified     {}, {} wrong\n", counted(report.verified, "distinct problem"),
                    format_count(static_cast<std::int64_t>(report.wrong.size()))));
  for (std::size_t i = 0; i < std::min(shown, report.wrong.size()); ++i) {
    const WrongResult& wrong = report.wrong[i];
    print(fmt::format("  line {}: {} {}: {}\n", wrong.entry->line, wrong.entry->op->name,
                      manifest::display_text(*wrong.entry->op, wrong.entry->problem), wrong.reason));
  }
}

void print_look_ups(const Globals& globals, const Target& target, const Counts& counts, const DryReport& report,
                    std::string_view policy) {
  if (globals.json) return print_json_look_ups(target, counts, report, policy);
  const DryTotals totals(report, policy);
  print(fmt::format("Lookups only, for {} ({}); nothing was launched.\n{}\n\n", target.facts.device_class(),
                    target.about, sentence(counts)));
  Table origins({"answer from", "> problems", "> buckets"});
  for (std::size_t i = 1; i < origin_count; ++i)
    if (totals.buckets[i] > 0)
      origins.row({std::string(to_string(static_cast<Origin>(i))), format_count(totals.problems[i]),
                   format_count(totals.buckets[i])});
  if (totals.missing_problems > 0)
    origins.row({fmt::format("miss ({})", done_instead(policy)), format_count(totals.missing_problems),
                 format_count(totals.missing)});
  if (totals.unserved > 0) origins.row({"nothing legal", format_count(totals.unserved), ""});
  print(origins.text() + "\n");
  Table table({"", ""});
  table.row({"buckets without a record", format_count(totals.missing)});
  for (std::size_t i = 0; i < totals.misses.size(); ++i)
    if (totals.misses[i] > 0)
      table.row({fmt::format("  {}", to_string(static_cast<answer::Miss>(i))), format_count(totals.misses[i])});
  table.row({"buckets with a record, without machine code", format_count(totals.without_cubin)});
  if (totals.stale > 0) table.row({"buckets with a stale record", format_count(totals.stale)});
  if (report.constraint_fallbacks > 0)
    table.row(
        {"served by the default, as no config of the record is legal", format_count(report.constraint_fallbacks)});
  print(table.text());
  print_not_ready(report, policy);
  print_next_steps(report.next);
}

}  // namespace kiln::cli
