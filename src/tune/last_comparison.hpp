// The last comparison: times the candidates that may win at each size together, until their times differ beyond the
// noise. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tune/scoreboard.hpp"

namespace kiln::tune {

class LastComparison {
 public:
  /// Takes in, at each size, the fastest few contenders, at least two candidates that need no library, and the baseline
  /// at the last size. A candidate taken in at one size also enters wherever it is about as fast, since one config
  /// should serve many sizes. All others are eliminated.
  LastComparison(Scoreboard& scores, std::span<const std::size_t> of_libraries);
  /// As Search::next().
  [[nodiscard]] std::optional<Ask> next();
  /// As Search::comparisons().
  [[nodiscard]] std::vector<Comparison> comparisons() const;

 private:
  struct Participant {
    Point point;
    double before_ns = 0;  // its median before this comparison
  };
  void take_in();
  void add(Point point);
  /// Eliminates candidates that are slower than the leader by more than a served config may be, beyond the noise.
  /// Candidates that need no library are held against the fastest of them.
  void eliminate();
  /// Scales the costs of candidates that were eliminated or not compared to the clock of the last rounds.
  void rescale_others();
  [[nodiscard]] std::optional<std::size_t> leader(std::size_t size, bool with_libraries = true) const;
  [[nodiscard]] bool has(Point point) const;

  Scoreboard& scores_;
  std::vector<std::size_t> of_libraries_;
  std::vector<Participant> participants_;  // with eliminated ones
  std::int64_t rounds_ = 0, most_rounds_ = 0;
  bool over_ = false;
};

}  // namespace kiln::tune
