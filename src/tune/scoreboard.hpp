// The samples taken so far, by candidate and size. Pure.
#pragma once

#include <optional>
#include <vector>

#include "tune/search.hpp"

namespace kiln::tune {

/// A candidate is untried, tried or rejected. A tried one contends at each size where it has samples, until it is
/// eliminated there.
class Scoreboard {
 public:
  Scoreboard(std::size_t candidates, std::size_t sizes) : sizes_(sizes), rows_(candidates) {}
  /// Adds samples at a size. No samples: the candidate cannot be launched there and does not contend.
  void add(Point point, std::span<const double> samples_ns);
  void reject(std::size_t candidate) { rows_[candidate] = {Stage::rejected, {}}; }
  void eliminate(Point point) { cell(point).contends = false; }
  /// At each size, eliminates contenders whose interval begins well above the end of the leader's. Keeps the baseline
  /// at the last size.
  void eliminate();
  /// Drops samples taken under other conditions, such as of an earlier round. Keeps the cost.
  void forget_samples(Point point) { cell(point).samples.clear(); }
  /// Multiplies the cost of a point by `factor`.
  void rescale(Point point, double factor) { cell(point).cost = times(cell(point).cost, factor); }

  [[nodiscard]] std::size_t candidates() const noexcept { return rows_.size(); }
  [[nodiscard]] std::size_t sizes() const noexcept { return sizes_; }
  [[nodiscard]] bool is_untried(std::size_t candidate) const { return rows_[candidate].stage == Stage::untried; }
  [[nodiscard]] bool is_rejected(std::size_t candidate) const { return rows_[candidate].stage == Stage::rejected; }
  [[nodiscard]] bool contends(Point point) const {
    const Row& row = rows_[point.candidate];
    return !row.cells.empty() && row.cells[point.size].contends;
  }
  /// Whether the candidate contends at any size.
  [[nodiscard]] bool contends(std::size_t candidate) const;
  [[nodiscard]] const Cost& cost(Point point) const;
  [[nodiscard]] const std::vector<double>& samples(Point point) const;
  /// Returns the contender with the lowest median at a size.
  [[nodiscard]] std::optional<std::size_t> leader(std::size_t size) const;
  /// Returns the leader's median, or infinity without a leader.
  [[nodiscard]] double best_ns(std::size_t size) const;

 private:
  enum class Stage : std::uint8_t { untried, tried, rejected };
  struct Cell {
    bool contends = false;
    std::vector<double> samples;
    Cost cost;
  };
  struct Row {
    Stage stage = Stage::untried;
    std::vector<Cell> cells;  // by size; empty while it is untried
  };
  Cell& cell(Point point);

  std::size_t sizes_;
  std::vector<Row> rows_;
};

}  // namespace kiln::tune
