#include "cli/replay_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t shown = 20;  // of what is wrong or missing

double at_quantile(std::vector<double> values, double quantile) {
  const auto rank = static_cast<std::ptrdiff_t>(quantile * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<std::size_t>(rank)];
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

std::string sentence(const Counts& counts) {
  return fmt::format("{} problems, {} of them distinct, in {} buckets", format_count(counts.problems), format_count(counts.distinct), format_count(counts.buckets));
}

/// Look-ups by origin; those that nothing legal can serve are apart.
struct DryTotals {
  std::array<std::int64_t, origin_count> problems{}, buckets{};
  std::int64_t unserved = 0, missing = 0, without_cubin = 0, stale = 0;

  explicit DryTotals(const DryReport& report) {
    for (const DryBucket& bucket : report.buckets) {
      const auto origin = static_cast<std::size_t>(bucket.origin);
      if (bucket.served) {
        problems[origin] += bucket.problems;
        ++buckets[origin];
      } else {
        unserved += bucket.problems;
      }
      if (!bucket.is_hit()) ++missing;
      if (!bucket.cubin_in_files) ++without_cubin;
      if (bucket.stale) ++stale;
    }
  }
};

void print_json_look_ups(const Target& target, const Counts& counts, const DryReport& report) {
  const DryTotals totals(report);
  Json json{{"event", "looked_up"}, {"launched", 0}, {"device_class", target.facts.device_class()}, {"problems", counts.problems}, {"distinct", counts.distinct},
            {"buckets", counts.buckets}, {"by_origin", Json::object()}, {"missing_buckets", totals.missing}, {"unserved_problems", totals.unserved},
            {"stale_buckets", totals.stale}, {"buckets_without_cubin", totals.without_cubin}, {"constraint_fallbacks", report.constraint_fallbacks}};
  for (std::size_t i = 1; i < origin_count; ++i) json["by_origin"][std::string(to_string(static_cast<Origin>(i)))] = totals.problems[i];
  print_json(json);
}

void print_not_ready(const DryReport& report) {
  std::size_t named = 0;
  for (const DryBucket& bucket : report.buckets) {
    if (bucket.is_ready() || named++ >= shown) continue;
    print(fmt::format("  {} {}: {}{}\n", bucket.op->name, spec::to_string(*bucket.op, bucket.bucket),
                      bucket.is_hit() ? "a record" : bucket.served ? fmt::format("no record, served by {}", to_string(bucket.origin)) : "nothing legal",
                      bucket.cubin_in_files ? "" : ", no machine code"));
  }
  if (named > shown) print(fmt::format("  ... and {} more\n", named - shown));
}

}  // namespace

Counts count(std::span<const TraceEntry> trace) {
  std::set<std::pair<const spec::Op*, std::string>> distinct, buckets;
  for (const TraceEntry& entry : trace) {
    distinct.emplace(entry.op, spec::to_string(*entry.op, entry.problem));
    buckets.emplace(entry.op, spec::to_string(*entry.op, spec::bucket_of(*entry.op, entry.problem)));
  }
  return {static_cast<std::int64_t>(trace.size()), static_cast<std::int64_t>(distinct.size()), static_cast<std::int64_t>(buckets.size())};
}

void print_launches(const Globals& globals, const Counts& counts, const LaunchReport& report) {
  const Stats& stats = report.stats;
  Table table({"answer from", "> launches", "> host median", "> host p99", "> host total"});
  Json by_origin = Json::object();
  double host_ns = 0;
  for (std::size_t i = 0; i < origin_count; ++i) {
    const std::vector<double>& each = report.host_ns[i];
    const std::string name(to_string(static_cast<Origin>(i)));
    if (each.empty()) {
      by_origin[name] = {{"launches", 0}};
      continue;
    }
    const double total = sum(each), median = at_quantile(each, 0.5), p99 = at_quantile(each, 0.99);
    host_ns += total;
    table.row({name, format_count(static_cast<std::int64_t>(each.size())), format_time(median), format_time(p99), format_time(total)});
    by_origin[name] = {{"launches", each.size()}, {"host_median_ns", median}, {"host_p99_ns", p99}, {"host_total_ns", total}};
  }
  if (globals.json) {
    print_json({{"event", "replayed"}, {"problems", counts.problems}, {"distinct", counts.distinct}, {"buckets", counts.buckets}, {"by_origin", by_origin},
                {"tunes", stats.tunes}, {"compiles", stats.compiles}, {"stale", stats.stale}, {"constraint_fallbacks", stats.constraint_fallbacks},
                {"quarantined", stats.quarantined}, {"host_ns", host_ns}, {"device_ns", report.device_ns}});
    return;
  }
  print(fmt::format("{}\n\n{}\n", sentence(counts), table.text()));
  Table totals({"", ""});
  totals.row({"tunes", format_count(stats.tunes)});
  totals.row({"compiles", format_count(stats.compiles)});
  if (stats.stale > 0) totals.row({"stale records served", format_count(stats.stale)});
  if (stats.constraint_fallbacks > 0) totals.row({"served by the default, the record not being legal at the real size", format_count(stats.constraint_fallbacks)});
  if (stats.quarantined > 0) totals.row({"rows of the files that did not hold", format_count(stats.quarantined)});
  totals.row({"host time", format_time(host_ns)});
  totals.row({"device time", format_time(report.device_ns)});
  print(totals.text());
}

void print_verified(const Globals& globals, const VerifyReport& report) {
  if (globals.json) {
    Json json{{"event", "verified"}, {"verified", report.verified}, {"wrong", report.wrong.size()}, {"wrong_results", Json::array()}};
    for (const WrongResult& wrong : report.wrong)
      json["wrong_results"].push_back({{"line", wrong.entry->line}, {"op", wrong.entry->op->name}, {"problem", spec::to_string(*wrong.entry->op, wrong.entry->problem)}, {"reason", wrong.reason}});
    print_json(json);
    return;
  }
  print(fmt::format("\nverified     {} distinct problems, {} wrong\n", format_count(report.verified), format_count(static_cast<std::int64_t>(report.wrong.size()))));
  for (std::size_t i = 0; i < std::min(shown, report.wrong.size()); ++i) {
    const WrongResult& wrong = report.wrong[i];
    print(fmt::format("  line {}: {} {}: {}\n", wrong.entry->line, wrong.entry->op->name, spec::to_string(*wrong.entry->op, wrong.entry->problem), wrong.reason));
  }
}

void print_look_ups(const Globals& globals, const Target& target, const Counts& counts, const DryReport& report) {
  if (globals.json) return print_json_look_ups(target, counts, report);
  const DryTotals totals(report);
  print(fmt::format("Nothing was launched: these are look-ups for {} ({}).\n{}\n\n", target.facts.device_class(), target.about, sentence(counts)));
  Table origins({"answer from", "> problems", "> buckets"});
  for (std::size_t i = 1; i < origin_count; ++i)
    if (totals.buckets[i] > 0) origins.row({std::string(to_string(static_cast<Origin>(i))), format_count(totals.problems[i]), format_count(totals.buckets[i])});
  if (totals.unserved > 0) origins.row({"nothing legal", format_count(totals.unserved), ""});
  print(origins.text() + "\n");
  Table table({"", ""});
  table.row({"buckets without a record", format_count(totals.missing)});
  table.row({"buckets without machine code", format_count(totals.without_cubin)});
  if (totals.stale > 0) table.row({"buckets with a stale record", format_count(totals.stale)});
  if (report.constraint_fallbacks > 0) table.row({"problems left to the default, the record not being legal at the real size", format_count(report.constraint_fallbacks)});
  print(table.text());
  print_not_ready(report);
}

}  // namespace kiln::cli
