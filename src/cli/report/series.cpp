#include "cli/report/series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/record_facts.hpp"

namespace kiln::cli::report {
namespace {

std::size_t length_axis_of(const manifest::Op& op, const std::vector<const Entry*>& entries) {
  std::size_t best = 0;
  std::pair<bool, std::size_t> best_score;
  for (std::size_t axis = 0; axis < op.axes.size(); ++axis) {
    std::set<std::int64_t> values;
    for (const Entry* entry : entries) values.insert(entry->bucket.axes[axis]);
    const std::pair score(op.axes[axis].policy.kind != manifest::PolicyKind::exact, values.size());
    if (axis > 0 && score <= best_score) continue;
    best = axis;
    best_score = score;
  }
  return best;
}

std::string all_but(const manifest::Op& op, const Problem& bucket, std::size_t left_out) {
  std::string text;
  const auto add = [&](const std::string& name, const auto& value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  };
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (i != left_out) add(op.axes[i].name, bucket.axes[i]);
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    add(op.selections[i].name, op.selections[i].values[bucket.selections[i]]);
  return text;
}

void add_series_of(const manifest::Op& op, const std::vector<const Entry*>& entries, std::vector<Series>& all) {
  const std::size_t axis = length_axis_of(op, entries);
  std::map<std::pair<std::string, std::string>, std::map<std::string, Series>> groups;
  for (const Entry* entry : entries) {
    const std::string fixed = all_but(op, entry->bucket, axis);
    Series& series = groups[{entry->record.device_class, entry->record.regime}][fixed];
    series.op = &op;
    series.axis = axis;
    series.fixed = fixed;
    series.device_class = entry->record.device_class;
    series.regime = entry->record.regime;
    series.points.push_back(entry);
  }
  const std::size_t before = all.size();
  for (auto& [place, group] : groups)
    for (auto& [fixed, series] : group) {
      std::stable_sort(series.points.begin(), series.points.end(),
                       [&](const Entry* a, const Entry* b) { return a->bucket.axes[axis] < b->bucket.axes[axis]; });
      all.push_back(std::move(series));
    }
  std::stable_sort(all.begin() + static_cast<std::ptrdiff_t>(before), all.end(), [](const Series& a, const Series& b) {
    if (a.device_class != b.device_class) return a.device_class < b.device_class;
    if (a.regime != b.regime) return a.regime < b.regime;
    return reads_before(a.fixed, b.fixed);
  });
}

}  // namespace

std::vector<Series> series_of(const Content& content) {
  std::map<const manifest::Op*, std::vector<const Entry*>> by_op;
  for (const Entry& entry : content.entries)
    if (entry.op != nullptr && entry.record.at_edge().cost_ns > 0 && !entry.op->axes.empty())
      by_op[entry.op].push_back(&entry);
  std::vector<Series> all;
  for (const manifest::Op& op : content.ops)
    if (const auto entries = by_op.find(&op); entries != by_op.end()) add_series_of(op, entries->second, all);
  return all;
}

std::string title_of(const Series& series, const Content& content) {
  std::string title = series.fixed;
  if (content.devices.size() > 1) {
    const auto name = content.devices.find(series.device_class);
    title += fmt::format(" · {}", name != content.devices.end() ? name->second : series.device_class);
  }
  if (series.regime == manifest::to_string(Regime::hot_l2)) title += " · warm L2";
  return title;
}

}  // namespace kiln::cli::report
