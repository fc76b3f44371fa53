#include "tune/scoreboard.hpp"

#include <algorithm>
#include <span>

namespace kiln::tune {
namespace {

constexpr double reach =
    1.02;  // beginning of an interval over the end of the leader's: above, a candidate is eliminated
constexpr std::size_t always_kept = 4;  // at each length, so that a disturbed sample does not decide alone

}  // namespace

Scoreboard::Cell& Scoreboard::cell(Point point) {
  Entry& entry = entries_[point.candidate];
  if (entry.cells.empty()) entry.cells.resize(lengths_);
  return entry.cells[point.length];
}

void Scoreboard::add(Point point, std::span<const double> samples_ns) {
  if (is_rejected(point.candidate)) return;
  entries_[point.candidate].standing = Standing::tried;
  Cell& at = cell(point);
  at.samples.insert(at.samples.end(), samples_ns.begin(), samples_ns.end());
  at.contends = !at.samples.empty();
  std::vector<double> sorted = at.samples;
  at.cost = summarise(sorted);
}

bool Scoreboard::contends(std::size_t candidate) const {
  return std::ranges::any_of(entries_[candidate].cells, &Cell::contends);
}

const Cost& Scoreboard::cost(Point point) const {
  static const Cost none;
  const Entry& entry = entries_[point.candidate];
  return entry.cells.empty() ? none : entry.cells[point.length].cost;
}

const std::vector<double>& Scoreboard::samples(Point point) const {
  static const std::vector<double> none;
  const Entry& entry = entries_[point.candidate];
  return entry.cells.empty() ? none : entry.cells[point.length].samples;
}

std::optional<std::size_t> Scoreboard::leader(std::size_t length) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (contends({i, length}) && (!best || cost({i, length}).median_ns < cost({*best, length}).median_ns)) best = i;
  return best;
}

double Scoreboard::best_ns(std::size_t length) const {
  const auto first = leader(length);
  return first ? cost({*first, length}).median_ns : Cost().median_ns;
}

void Scoreboard::eliminate() {
  for (std::size_t length = 0; length < lengths_; ++length) {
    std::vector<std::size_t> ranked;
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (contends({i, length})) ranked.push_back(i);
    std::ranges::stable_sort(ranked, {}, [&](std::size_t i) { return cost({i, length}).median_ns; });
    if (ranked.size() <= always_kept) continue;
    const double limit = reach * cost({ranked.front(), length}).high_ns;
    const bool is_edge = length + 1 == lengths_;
    for (const std::size_t i : std::span(ranked).subspan(always_kept))
      if (cost({i, length}).low_ns > limit && !(is_edge && i == 0)) eliminate({i, length});
  }
}

}  // namespace kiln::tune
