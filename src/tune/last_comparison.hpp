// The last comparison: at each length those that may win there, side by side, until they are told apart.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tune/scoreboard.hpp"

namespace kiln::tune {

class LastComparison {
 public:
  /// Of the contenders of each length, the fastest few, of those without a library two at least, and the baseline at the last one; and what
  /// takes part at one length does so wherever it is about as fast, since one config shall serve many lengths. The others are beaten.
  LastComparison(Scoreboard& scores, std::span<const std::size_t> of_libraries);
  [[nodiscard]] std::optional<Ask> next();
  /// Search::comparisons.
  [[nodiscard]] std::vector<Comparison> comparisons() const;

 private:
  struct Entry {
    Point point;
    double before_ns = 0;  // what it took before
  };
  void take_in();
  void add(Point point);
  /// Who is slower than the leader by more than a set of configs may be, beyond the noise, is beaten there; of those that need no library,
  /// than the first of them.
  void eliminate();
  /// At the end: what the others took before, and who was eliminated in early rounds, as it is beside what those who are left take now.
  void level();
  [[nodiscard]] std::optional<std::size_t> leader(std::size_t length, bool with_libraries = true) const;
  [[nodiscard]] bool has(Point point) const;
  [[nodiscard]] bool is_library(std::size_t candidate) const;

  Scoreboard& scores_;
  std::vector<std::size_t> of_libraries_;
  std::vector<Entry> entries_;  // eliminated ones too
  std::int64_t rounds_ = 0, most_rounds_ = 0;
  bool over_ = false;
};

}  // namespace kiln::tune
