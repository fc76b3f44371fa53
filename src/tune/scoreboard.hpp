// What was measured so far: samples by candidate and length.
#pragma once

#include <optional>
#include <vector>

#include "tune/search.hpp"

namespace kiln::tune {

/// A candidate is untried, tried or rejected; one that was tried contends at a length until it is beaten there.
class Scoreboard {
 public:
  Scoreboard(std::size_t candidates, std::size_t lengths) : lengths_(lengths), entries_(candidates) {}
  /// Samples at a length; none: it cannot be launched there, and is beaten.
  void add(Point point, std::span<const double> samples_ns);
  void reject(std::size_t candidate) { entries_[candidate] = {Standing::rejected, {}}; }
  void beat(Point point) { cell(point).contends = false; }
  /// At each length, beats every contender whose interval begins well behind the leader's end. The baseline stays at the last length.
  void eliminate();
  /// Samples of other conditions, such as of an earlier round, do not enter the comparison that begins now.
  void forget_samples(Point point) { cell(point).samples.clear(); }
  /// What it takes where everything takes `factor` times as long.
  void rescale(Point point, double factor) { cell(point).cost = times(cell(point).cost, factor); }

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t lengths() const noexcept { return lengths_; }
  [[nodiscard]] bool is_untried(std::size_t candidate) const {
    return entries_[candidate].standing == Standing::untried;
  }
  [[nodiscard]] bool is_rejected(std::size_t candidate) const {
    return entries_[candidate].standing == Standing::rejected;
  }
  [[nodiscard]] bool contends(Point point) const {
    const Entry& entry = entries_[point.candidate];
    return !entry.cells.empty() && entry.cells[point.length].contends;
  }
  /// At any length.
  [[nodiscard]] bool contends(std::size_t candidate) const;
  [[nodiscard]] const Cost& cost(Point point) const;
  [[nodiscard]] const std::vector<double>& samples(Point point) const;
  /// The contender of the lowest median at a length.
  [[nodiscard]] std::optional<std::size_t> leader(std::size_t length) const;
  /// The median of the leader; infinite without one.
  [[nodiscard]] double best_ns(std::size_t length) const;

 private:
  enum class Standing : std::uint8_t { untried, tried, rejected };
  struct Cell {
    bool contends = false;
    std::vector<double> samples;
    Cost cost;
  };
  struct Entry {
    Standing standing = Standing::untried;
    std::vector<Cell> cells;  // by length; empty while it is untried
  };
  Cell& cell(Point point);

  std::size_t lengths_;
  std::vector<Entry> entries_;
};

}  // namespace kiln::tune
