// How the candidates of a bucket are spread: a strip a bucket, over how many times the winner's time they took.
#include <algorithm>
#include <array>
#include <cmath>

#include "cli/report/axis.hpp"
#include "cli/report/facts.hpp"
#include "cli/report/html.hpp"
#include "cli/report/sections.hpp"
#include "cli/units.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::size_t most_strips = 240, most_strips_of_group = 40;
constexpr int bins = 88;
constexpr double width = 440, margin = 10, height = 26;
constexpr double most_times = 100;  // slower ones gather at the right end

std::vector<const Entry*> with_trials(const Series& series) {
  std::vector<const Entry*> entries;
  for (const Entry* entry : series.points)
    if (entry->trials) entries.push_back(entry);
  return entries;
}

LogAxis axis_of(const std::vector<const Entry*>& entries) {
  Interval range{0.97, 2};
  for (const Entry* entry : entries) {
    const auto& costs = entry->trials->costs_ns;
    if (costs.empty()) continue;
    range.low = std::clamp(costs.front() / entry->record.at_edge().cost_ns / 1.01, 0.5, range.low);
    range.high = std::clamp(costs.back() / entry->record.at_edge().cost_ns * 1.02, range.high, most_times);
  }
  return {range, margin, width - margin};
}

double place(const LogAxis& axis, double times) {
  return axis.at(std::clamp(times, axis.range().low, axis.range().high));
}

/// "1× 1.5× 2× 5×" above the strips.
void draw_scale(std::string& out, const LogAxis& axis) {
  append(out, "<svg class=\"strip\" viewBox=\"0 0 {:.0f} 14\" aria-hidden=\"true\">", width);
  for (const double times : {1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0}) {
    if (times > axis.range().high || (times == 1.2 && axis.range().high > 5) ||
        (times == 1.5 && axis.range().high > 20))
      continue;
    append(out, "<text class=\"tick\" x=\"{:.1f}\" y=\"11\" text-anchor=\"middle\">{:g}×</text>", axis.at(times),
           times);
  }
  out += "</svg>";
}

std::string bars_of(const std::vector<double>& costs_ns, double winner_ns, const LogAxis& axis) {
  std::array<int, bins> counts{};
  constexpr double step = (width - 2 * margin) / bins;
  for (const double ns : costs_ns)
    ++counts[static_cast<std::size_t>(
        std::clamp(static_cast<int>((place(axis, ns / winner_ns) - margin) / step), 0, bins - 1))];
  const int most = *std::max_element(counts.begin(), counts.end());
  std::string path;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const double bar = std::max(3.0, (height - 4) * counts[i] / most);
    append(path, "M{:.1f} {:.0f}v{:.1f}h{:.1f}v{:.1f}z", margin + static_cast<double>(i) * step, height - 1, -bar,
           step - 0.8, bar);
  }
  return path;
}

void draw_strip(std::string& out, const Entry& entry, const LogAxis& axis) {
  const store::Record& record = entry.record;
  const double winner_ns = record.at_edge().cost_ns;
  const auto& costs = entry.trials->costs_ns;
  append(
      out,
      "<svg class=\"strip\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\"><title>{} candidates timed, {} to {}; the winner {}, the default {}</title>",
      width, height, costs.size(), costs.empty() ? "-" : time_of(costs.front()),
      costs.empty() ? "-" : time_of(costs.back()), time_of(winner_ns),
      record.baseline_ns > 0 ? time_of(record.baseline_ns) : "not known");
  append(out, "<path class=\"axis\" d=\"M{:.0f} {:.1f}H{:.0f}\"/>", margin, height - 0.5, width - margin);
  if (!costs.empty()) append(out, "<path class=\"bars\" d=\"{}\"/>", bars_of(costs, winner_ns, axis));
  if (record.baseline_ns > 0) {
    const double x = place(axis, record.baseline_ns / winner_ns);
    append(out, "<path class=\"at baseline\" d=\"M{:.1f} 0V{:.0f}\"/>", x, height);
  }
  append(out, "<path class=\"at winner\" d=\"M{:.1f} 0V{:.0f}\"/></svg>", axis.at(1), height);
}

std::string failures_of(const Trials& trials) {
  std::string text;
  for (std::size_t i = 1; i < trials.verdicts.size(); ++i) {
    if (trials.verdicts[i] == 0) continue;
    std::string name(store::to_string(static_cast<store::Verdict>(i)));
    std::replace(name.begin(), name.end(), '_', ' ');
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", trials.verdicts[i], name);
  }
  return text;
}

void draw_row(std::string& out, const Series& series, const Entry& entry, const LogAxis& axis) {
  const Trials& trials = *entry.trials;
  append(out, "<tr><th scope=\"row\" class=\"nowrap\">{}={}<td class=\"picture\">", Text{series.length_axis().name},
         series.length(entry));
  draw_strip(out, entry, axis);
  const std::string failures = failures_of(trials);
  append(
      out,
      "<td class=\"r\" data-label=\"winner\">{}<td class=\"r\" data-label=\"gain\">{}<td class=\"r\" data-label=\"timed\">{}<td data-label=\"failed\" class=\"{}\"",
      time_of(entry.record.at_edge().cost_ns), ratio_of(gain_of(entry.record)), trials.costs_ns.size(),
      failures.empty() ? "quiet" : "bad");
  append(out, ">{}", failures.empty() ? "none" : failures);
  if (!trials.reason.empty()) append(out, "<small>{}</small>", Text{clipped(trials.reason, 120)});
  out += '\n';
}

void draw_group(std::string& out, const Series& series, const std::vector<const Entry*>& entries,
                const Content& content, std::size_t shown, bool open) {
  const LogAxis axis = axis_of(entries);
  open_details(out,
               fmt::format("{} · {} ({} {})", series.op->name, clipped(title_of(series, content)), entries.size(),
                           entries.size() == 1 ? "bucket" : "buckets"),
               open);
  out +=
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Candidates\"><table class=\"strips\"><thead><tr><th scope=\"col\">Bucket<th scope=\"col\">Times the winner's time ";
  draw_scale(out, axis);
  out +=
      "<th scope=\"col\" class=\"r\">Winner<th scope=\"col\" class=\"r\">Gain<th scope=\"col\" class=\"r\">Timed<th scope=\"col\">Failed</thead><tbody>\n";
  for (std::size_t i = 0; i < shown; ++i) draw_row(out, series, *entries[i], axis);
  close_table(out);
  say_left_out(out, entries.size() - shown, "buckets are", "<code>kiln cache show</code> shows one in full");
  close_details(out);
}

}  // namespace

void draw_candidates(std::string& out, const Content& content, const std::vector<Series>& all) {
  out += "<section id=\"candidates\" aria-labelledby=\"h-candidates\"><h2 id=\"h-candidates\">Candidates</h2>\n";
  std::string groups;
  std::size_t drawn = 0, left_out = 0;
  const manifest::Op* last = nullptr;
  for (const Series& series : all) {
    const auto entries = with_trials(series);
    if (entries.empty()) continue;
    const std::size_t shown = std::min({entries.size(), most_strips_of_group, most_strips - drawn});
    if (shown == 0) {
      left_out += entries.size();
      continue;
    }
    draw_group(groups, series, entries, content, shown, series.op != last);
    last = series.op;
    drawn += shown;
  }
  if (drawn == 0)
    out += "<p class=\"note\">These files hold no candidates: shipped files may leave the candidates out.</p>\n";
  else
    out +=
        "<p class=\"legend\"><span><svg class=\"key\" viewBox=\"0 0 22 14\" aria-hidden=\"true\"><path class=\"bars\" d=\"M3 13v-5h4v5zM8 13v-11h4v11zM13 13v-7h4v7z\"/></svg> how many candidates took this long</span>"
        "<span><svg class=\"key\" viewBox=\"0 0 22 14\" aria-hidden=\"true\"><path class=\"at winner\" d=\"M11 0V14\"/></svg> the winner</span>"
        "<span><svg class=\"key\" viewBox=\"0 0 22 14\" aria-hidden=\"true\"><path class=\"at baseline\" d=\"M11 0V14\"/></svg> the default</span></p>\n";
  out += groups;
  say_left_out(out, left_out, "buckets are", "<code>--op</code> shows one op's");
  out += "</section>\n";
}

}  // namespace kiln::cli::report
