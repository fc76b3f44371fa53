// What the files hold at a glance, and where launches got their answers.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "cli/report/facts.hpp"
#include "cli/report/html.hpp"
#include "cli/report/sections.hpp"
#include "cli/units.hpp"

namespace kiln::cli::report {
namespace {

std::string count_of(std::size_t number) { return format_count(static_cast<std::int64_t>(number)); }

void tile(std::string& out, std::string_view number, std::string_view what, std::string_view more = {},
          bool warns = false) {
  append(out, "<div class=\"tile{}\"><dt>{}</dt><dd><b>{}</b><small>{}</small></dd></div>\n", warns ? " warn" : "",
         Text{what}, Text{number}, Text{more});
}

struct Gains {
  std::vector<double> all;  // rising
  std::size_t kept = 0;     // the default itself has won
  explicit Gains(const std::vector<Entry>& entries) {
    for (const Entry& entry : entries)
      if (const double gain = gain_of(entry.record); gain > 0) {
        all.push_back(gain);
        if (entry.record.baseline_ns <= entry.record.at_edge().cost_ns) ++kept;
      }
    std::sort(all.begin(), all.end());
  }
  [[nodiscard]] double geometric_mean() const {
    double sum = 0;
    for (const double gain : all) sum += std::log(gain);
    return std::exp(sum / static_cast<double>(all.size()));
  }
};

void draw_tiles(std::string& out, const Content& content) {
  std::set<std::string> ops;
  std::size_t stale = 0;
  std::int64_t trials = 0;
  for (const Entry& entry : content.entries) {
    ops.insert(entry.record.op);
    stale += entry.standing == engine::Standing::stale ? 1U : 0U;
    if (entry.trials)
      for (const std::int64_t each : entry.trials->verdicts) trials += each;
  }
  const Gains gains(content.entries);
  out += "<dl class=\"tiles\">\n";
  tile(out, count_of(content.entries.size()), "records",
       content.hidden > 0 ? fmt::format("{} more behind an earlier file's", format_count(content.hidden))
                          : fmt::format("of {} {}", ops.size(), ops.size() == 1 ? "op" : "ops"));
  tile(out, count_of(content.devices.size()), content.devices.size() == 1 ? "device class" : "device classes",
       content.devices.size() == 1 ? clipped(content.devices.begin()->second, 40) : "");
  if (!gains.all.empty())
    tile(out, ratio_of(gains.geometric_mean()), "over the default",
         fmt::format("geometric mean; the default stays in {}", count_of(gains.kept)));
  if (trials > 0) tile(out, format_count(trials), "candidates tried");
  tile(out, count_of(stale), "stale records", stale > 0 ? "tuned from other sources" : "", stale > 0);
  tile(out, content.counted_problems > 0 ? count_of(content.missing.size()) : "–", "buckets missing",
       content.counted_problems > 0 ? "launched, without a record" : "no launches were counted",
       !content.missing.empty());
  out += "</dl>\n";
}

struct Kind {
  std::string_view name, css_class, meaning;
};

Kind kind_of(std::string_view origin) {
  if (origin == to_string(Origin::hot)) return {"hit", "good", "a plan in memory"};
  if (origin == to_string(Origin::overlay)) return {"hit", "good", "the user's file"};
  if (origin == to_string(Origin::base)) return {"hit", "good", "a shipped file"};
  return {"fallback", "poor", "no record of the bucket"};
}

std::string share_bar(double share, std::string_view css_class) {
  return fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" "
      "width=\"100\" height=\"8\"/><rect class=\"{}\" width=\"{:.2f}\" height=\"8\"/></svg>",
      css_class, 100 * share);
}

std::string percent(double share) { return fmt::format("{:.{}f} %", 100 * share, share > 0 && share < 0.0995 ? 2 : 1); }

std::vector<std::pair<std::string, std::int64_t>> most_first(const std::map<std::string, std::int64_t>& counts) {
  std::vector<std::pair<std::string, std::int64_t>> rows(counts.begin(), counts.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (rows.size() > 20) rows.resize(20);
  return rows;
}

double total_of(const std::map<std::string, std::int64_t>& counts) {
  double total = 0;
  for (const auto& [name, count] : counts) total += static_cast<double>(count);
  return std::max(total, 1.0);
}

void draw_uses(std::string& out, const Content& content) {
  out += "<h3>Where launches got their answers</h3>\n";
  if (content.launches.empty() && content.misses.empty()) {
    out +=
        "<p class=\"note\">No launches were counted: an engine leaves its counts to the overlay when it ends, and these files have none.</p>\n";
    return;
  }
  open_table(out, "Launches and misses", std::array<std::string, 5>{"Launches from", "Kind", "> Count", "> Share", ""},
             "class=\"counts\"");
  const double launches = total_of(content.launches);
  for (const auto& [origin, count] : most_first(content.launches)) {
    const Kind kind = kind_of(origin);
    const double share = static_cast<double>(count) / launches;
    append(out, "<tr><th scope=\"row\">{}<td>{}: {}<td class=\"r\">{}<td class=\"r\">{}<td>{}\n",
           Text{clipped(origin, 40)}, kind.name, kind.meaning, format_count(count), percent(share),
           share_bar(share, kind.css_class));
  }
  const double misses = total_of(content.misses);
  for (const auto& [reason, count] : most_first(content.misses)) {
    const double share = static_cast<double>(count) / misses;
    append(out, "<tr><th scope=\"row\">{}<td>a look-up's miss<td class=\"r\">{}<td class=\"r\">{}<td>{}\n",
           Text{clipped(reason, 40)}, format_count(count), percent(share), share_bar(share, "poor"));
  }
  close_table(out);
}

void draw_files(std::string& out, const Content& content) {
  out += "<h3>Files, in the order in which they are asked</h3>\n";
  open_table(out, "Files",
             std::array<std::string, 6>{"File", "Layer", "> Records", "> Candidates", "> Cubins", "> Size"});
  for (const Source& source : content.sources) {
    append(out, "<tr><th scope=\"row\" class=\"path\">{}<td>{}", Text{clipped(source.name)},
           source.overlay ? "overlay" : "base");
    if (!source.refused.empty())
      append(out, "<td colspan=\"4\" class=\"bad\">refused: {}\n", Text{clipped(source.refused, 300)});
    else
      append(out, "<td class=\"r\">{}<td class=\"r\">{}<td class=\"r\">{}<td class=\"r\">{}\n",
             format_count(source.stats.records), format_count(source.stats.candidates),
             format_count(source.stats.cubins), format_bytes(source.stats.file_bytes));
  }
  close_table(out);
}

}  // namespace

void draw_summary(std::string& out, const Content& content) {
  out += "<section id=\"summary\" aria-labelledby=\"h-summary\"><h2 id=\"h-summary\">Summary</h2>\n";
  draw_tiles(out, content);
  draw_uses(out, content);
  draw_files(out, content);
  out += "</section>\n";
}

}  // namespace kiln::cli::report
