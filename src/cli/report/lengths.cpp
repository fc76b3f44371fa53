// Time against length: a small chart for each set of the other axes, on scales that an op's charts share.
#include <algorithm>

#include "cli/report/chart.hpp"
#include "cli/report/facts.hpp"
#include "cli/report/html.hpp"
#include "cli/report/sections.hpp"
#include "cli/units.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::size_t most_charts_of_op = 12, most_charts = 48, most_points = 200, most_edges = 64;

/// What was timed along the series' axis, the other axes at their upper edges; by length.
std::vector<const TimedSizes*> times_of(const Series& series) {
  std::vector<const TimedSizes*> times;
  for (const Entry* entry : series.points)
    for (const TimedSizes& each : entry->times) {
      Problem edge = each.at;
      edge.axes[series.axis] = entry->bucket.axes[series.axis];
      if (edge == entry->bucket) times.push_back(&each);
    }
  std::ranges::stable_sort(times, {}, [&](const TimedSizes* each) { return each->at.axes[series.axis]; });
  return times;
}

struct Scales {
  Interval lengths, times;
  void add(const Series& series) {
    for (const TimedSizes* each : times_of(series)) {
      lengths.add(static_cast<double>(each->at.axes[series.axis]));
      times.add(each->cost_ns);
      times.add(each->baseline_ns);
    }
  }
};

bool makes_a_curve(const Series& series) {
  return series.points.size() > 1 && series.length(*series.points.front()) < series.length(*series.points.back());
}

void draw_edges(std::string& out, const Series& series, const Frame& frame, const LogAxis& x) {
  const manifest::Axis& axis = series.length_axis();
  if (axis.policy.kind == manifest::PolicyKind::exact) return;
  std::string path;
  std::int64_t last = 0;
  std::size_t drawn = 0;
  for (const Entry* entry : series.points) {
    const std::int64_t high = series.length(*entry);
    for (const std::int64_t edge : {axis.policy.low(high, axis.minimum, axis.maximum) - 1, high}) {
      if (edge <= last || static_cast<double>(edge) < x.range().low || drawn++ >= most_edges) continue;
      append(path, "M{:.1f} {:.1f}V{:.1f}", x.at(static_cast<double>(edge)), frame.top, frame.inner_bottom());
      last = edge;
    }
  }
  append(out, "<path class=\"edge\" d=\"{}\"/>\n", path);
}

void draw_curve(std::string& out, const Series& series, const LogAxis& x, const LogAxis& y, bool baseline) {
  std::string path;
  std::size_t drawn = 0;
  for (const TimedSizes* each : times_of(series)) {
    const double ns = baseline ? each->baseline_ns : each->cost_ns;
    if (!(ns > 0) || drawn >= most_points) continue;
    append(path, "{}{:.1f} {:.1f}", drawn++ == 0 ? 'M' : 'L', x.at(static_cast<double>(each->at.axes[series.axis])),
           y.at(ns));
  }
  append(out, "<path class=\"curve {}\" d=\"{}\"/>\n", baseline ? "baseline" : "winner", path);
}

void draw_points(std::string& out, const Series& series, const LogAxis& x, const LogAxis& y) {
  std::size_t drawn = 0;
  for (const TimedSizes* each : times_of(series)) {
    if (drawn++ >= most_points) break;
    const std::int64_t length = each->at.axes[series.axis];
    const double at = x.at(static_cast<double>(length));
    if (each->baseline_ns > 0)
      append(out, "<path class=\"dot baseline\" d=\"M{:.1f} {:.1f}h0\"/>", at, y.at(each->baseline_ns));
    draw_mark(out, at, y.at(each->cost_ns), 3.6, 0, "winner",
              words_of(*each, fmt::format("{}={}", series.length_axis().name, length)));
  }
}

void draw_table(std::string& out, const Series& series) {
  open_details(out, "Table");
  append(
      out,
      "<table class=\"small\"><thead><tr><th scope=\"col\" class=\"r\">{}<th scope=\"col\" class=\"r\">Time<th scope=\"col\" class=\"r\">Default<th scope=\"col\">Config</thead><tbody>\n",
      Text{series.length_axis().name});
  std::size_t drawn = 0;
  for (const TimedSizes* each : times_of(series)) {
    if (drawn++ >= most_points) break;
    append(out, "<tr><th scope=\"row\" class=\"r\">{}<td class=\"r\">{}<td class=\"r\">{}<td class=\"config\">{}\n",
           each->at.axes[series.axis], time_of(each->cost_ns), each->baseline_ns > 0 ? time_of(each->baseline_ns) : "–",
           Text{clipped(each->config)});
  }
  out += "</tbody></table>\n";
  close_details(out);
}

void draw_chart(std::string& out, const Series& series, const Content& content, const Scales& scales) {
  const Frame frame;
  const LogAxis x(scales.lengths.widened(1.35), frame.left, frame.inner_right());
  const LogAxis y(scales.times.widened(1.25), frame.inner_bottom(), frame.top);
  const std::string title = title_of(series, content);
  append(out, "<figure class=\"figure\"><figcaption>{}</figcaption>\n", Text{clipped(title)});
  open_chart(out, frame, x,
             {binary_ticks(scales.lengths, 8), short_length, series.length_axis().name,
              series.length_axis().policy.kind == manifest::PolicyKind::exact},
             y, {decimal_ticks(y.range()), short_time, "time"},
             fmt::format("Time against {} of {} {}; the table below has the numbers", series.length_axis().name,
                         series.op->name, clipped(title)));
  draw_edges(out, series, frame, x);
  draw_curve(out, series, x, y, true);
  draw_curve(out, series, x, y, false);
  draw_points(out, series, x, y);
  close_chart(out);
  out += "<p class=\"readout\" aria-live=\"polite\"></p>\n";
  draw_table(out, series);
  const std::size_t points = times_of(series).size();
  say_left_out(out, points - std::min(points, most_points), "points are", "the longest ones");
  out += "</figure>\n";
}

/// Where an op's series are too many, those with the most points; in their order.
std::vector<const Series*> chosen_of(const std::vector<const Series*>& curves, std::size_t most) {
  std::vector<const Series*> chosen = curves;
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Series* a, const Series* b) { return a->points.size() > b->points.size(); });
  if (chosen.size() > most) chosen.resize(most);
  std::sort(chosen.begin(), chosen.end());  // they lie in one array
  return chosen;
}

}  // namespace

void draw_lengths(std::string& out, const Content& content, const std::vector<Series>& all) {
  out += "<section id=\"length\" aria-labelledby=\"h-length\"><h2 id=\"h-length\">Time against length</h2>\n";
  std::vector<std::vector<const Series*>> by_op;
  for (const Series& series : all) {
    if (!makes_a_curve(series)) continue;
    if (by_op.empty() || by_op.back().front()->op != series.op) by_op.emplace_back();
    by_op.back().push_back(&series);
  }
  if (by_op.empty())
    out += "<p class=\"note\">No two records differ in a length alone, so there is no curve to draw.</p>\n";
  else
    out +=
        "<p class=\"legend\"><span><svg class=\"key\" viewBox=\"0 0 22 14\" aria-hidden=\"true\"><path class=\"curve winner\" d=\"M0 7H22\"/><path class=\"mark winner\" d=\"M7.4 7a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z\"/></svg> the config that serves the length</span>"
        "<span><svg class=\"key\" viewBox=\"0 0 22 14\" aria-hidden=\"true\"><path class=\"curve baseline\" d=\"M0 7H22\"/><path class=\"dot baseline\" d=\"M11 7h0\"/></svg> the default</span>"
        "<span><svg class=\"key\" viewBox=\"0 0 22 14\" aria-hidden=\"true\"><path class=\"edge\" d=\"M11 0V14\"/></svg> a bucket's edge</span></p>\n";
  std::size_t drawn = 0, left_out = 0;
  for (const auto& curves : by_op) {
    Scales scales;
    const auto chosen = chosen_of(curves, std::min(most_charts_of_op, most_charts - drawn));
    left_out += curves.size() - chosen.size();
    drawn += chosen.size();
    if (chosen.empty()) continue;
    for (const Series* series : chosen) scales.add(*series);
    append(out, "<h3>{} <small>{}</small></h3>\n<div class=\"figures\">\n", Text{curves.front()->op->name},
           Text{clipped(curves.front()->op->summary)});
    for (const Series* series : chosen) draw_chart(out, *series, content, scales);
    out += "</div>\n";
  }
  say_left_out(out, left_out, "charts are", "those with the fewest points; <code>--op</code> shows one op's");
  out += "</section>\n";
}

}  // namespace kiln::cli::report
