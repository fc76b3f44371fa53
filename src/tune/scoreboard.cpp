#include "tune/scoreboard.hpp"

#include <algorithm>
#include <span>

#include "tune/tolerances.hpp"

namespace kiln::tune {

Scoreboard::Cell& Scoreboard::cell(Point point) {
  Row& row = rows_[point.candidate];
  if (row.cells.empty()) row.cells.resize(sizes_);
  return row.cells[point.size];
}

void Scoreboard::add(Point point, std::span<const double> samples_ns) {
  if (is_rejected(point.candidate)) return;
  rows_[point.candidate].stage = Stage::tried;
  Cell& at = cell(point);
  at.samples.insert(at.samples.end(), samples_ns.begin(), samples_ns.end());
  at.contends = !at.samples.empty();
  std::vector<double> sorted = at.samples;
  at.cost = summarise(sorted);
}

bool Scoreboard::contends(std::size_t candidate) const {
  return std::ranges::any_of(rows_[candidate].cells, &Cell::contends);
}

const Cost& Scoreboard::cost(Point point) const {
  static const Cost none;
  const Row& row = rows_[point.candidate];
  return row.cells.empty() ? none : row.cells[point.size].cost;
}

const std::vector<double>& Scoreboard::samples(Point point) const {
  static const auto& none = *new std::vector<double>;
  const Row& row = rows_[point.candidate];
  return row.cells.empty() ? none : row.cells[point.size].samples;
}

std::optional<std::size_t> Scoreboard::leader(std::size_t size) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (contends({i, size}) && (!best || cost({i, size}).median_ns < cost({*best, size}).median_ns)) best = i;
  return best;
}

double Scoreboard::best_ns(std::size_t size) const {
  const auto first = leader(size);
  return first ? cost({*first, size}).median_ns : Cost().median_ns;
}

void Scoreboard::eliminate() {
  for (std::size_t size = 0; size < sizes_; ++size) {
    std::vector<std::size_t> ranked;
    for (std::size_t i = 0; i < rows_.size(); ++i)
      if (contends({i, size})) ranked.push_back(i);
    std::ranges::stable_sort(ranked, {}, [&](std::size_t i) { return cost({i, size}).median_ns; });
    if (ranked.size() <= always_kept) continue;
    const double limit = clearly_behind * cost({ranked.front(), size}).high_ns;
    const bool is_edge = size + 1 == sizes_;
    for (const std::size_t i : std::span(ranked).subspan(always_kept))
      if (cost({i, size}).low_ns > limit && !(is_edge && i == 0)) eliminate({i, size});
  }
}

}  // namespace kiln::tune
