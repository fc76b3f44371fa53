// Samples by candidate, and the last comparison: those that may win and the baseline, side by side, until they are told apart.
#pragma once

#include <map>
#include <vector>

#include "tune/search.hpp"

namespace kiln::tune {

/// What was measured so far. A candidate is untried, contends, is beaten, or is rejected.
class Scoreboard {
 public:
  explicit Scoreboard(std::size_t candidates) : entries_(candidates) {}
  void add(std::size_t candidate, std::span<const double> samples_ns);
  void reject(std::size_t candidate) { entries_[candidate] = {Standing::rejected, {}, {}}; }
  void beat(std::size_t candidate) { entries_[candidate].standing = Standing::beaten; }
  /// Beats every contender but the baseline whose interval begins well behind the leader's end; who is beaten stays so, since leaders
  /// only get faster.
  void eliminate();
  /// Samples of other conditions, such as an earlier heat, do not enter the comparison that begins now.
  void forget_samples(std::size_t candidate) { entries_[candidate].samples.clear(); }
  /// What it takes where everything takes `factor` times as long.
  void rescale(std::size_t candidate, double factor);

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] bool is_untried(std::size_t candidate) const {
    return entries_[candidate].standing == Standing::untried;
  }
  [[nodiscard]] bool contends(std::size_t candidate) const {
    return entries_[candidate].standing == Standing::contends;
  }
  [[nodiscard]] bool is_rejected(std::size_t candidate) const {
    return entries_[candidate].standing == Standing::rejected;
  }
  [[nodiscard]] const Cost& cost(std::size_t candidate) const { return entries_[candidate].cost; }
  [[nodiscard]] const std::vector<double>& samples(std::size_t candidate) const { return entries_[candidate].samples; }
  /// Those that contend, in order.
  [[nodiscard]] std::vector<std::size_t> contenders() const;
  /// The contender of the lowest median.
  [[nodiscard]] std::optional<std::size_t> leader() const;

 private:
  enum class Standing : std::uint8_t { untried, contends, beaten, rejected };
  struct Entry {
    Standing standing = Standing::untried;
    std::vector<double> samples;
    Cost cost;
  };
  std::vector<Entry> entries_;
};

class Finals {
 public:
  /// Of the contenders, those whose interval comes near the leader's, and the baseline; the others are beaten.
  explicit Finals(Scoreboard& scores);
  [[nodiscard]] std::optional<Ask> next();
  void report_inside(std::size_t candidate, std::span<const double> samples_ns);
  [[nodiscard]] std::optional<std::size_t> winner(std::span<const Burden> burdens) const;
  [[nodiscard]] double weighed_ns(std::size_t candidate) const;  // Search::weighed_ns

 private:
  void eliminate();
  /// What it takes at the second length. Of one that is not legal there, what the baseline takes, since a default serves in its place: a
  /// kernel that takes multiples of 8 alone is so not put out by one that is slow at all lengths. Nothing where the baseline has no
  /// samples there either.
  [[nodiscard]] std::span<const double> inside_of(std::size_t candidate) const;
  /// What is compared, round by round: the geometric mean of both lengths, or the edge alone where nothing is known of the second.
  [[nodiscard]] std::vector<double> figures_of(std::size_t candidate) const;
  /// Of these, those whose figures are of both lengths; all where no figure is.
  [[nodiscard]] std::vector<std::size_t> comparable(std::vector<std::size_t> candidates) const;
  [[nodiscard]] std::vector<std::size_t> contenders() const;
  [[nodiscard]] bool baseline_stands_in() const;
  /// At the end: what the others took in heats, and who was eliminated in early rounds, as it is beside what those who are left take now.
  void level();

  Scoreboard& scores_;
  std::vector<std::size_t> finalists_;                 // eliminated ones too
  std::vector<double> before_ns_;                      // what each took in heats
  std::map<std::size_t, std::vector<double>> inside_;  // samples at the second length
  std::int64_t rounds_ = 0, most_rounds_ = 0;
  bool over_ = false;
};

}  // namespace kiln::tune
