// Samples by candidate, and the last comparison: those that may win and the baseline, side by side, until they are told apart.
#pragma once

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
  [[nodiscard]] std::optional<std::size_t> winner(std::span<const Burden> burdens) const;

 private:
  void eliminate();
  /// At the end: what the others took in heats, and who was eliminated in early rounds, as it is beside what those who are left take now.
  void level();

  Scoreboard& scores_;
  std::vector<std::size_t> finalists_;  // eliminated ones too
  std::vector<double> before_ns_;       // what each took in heats
  std::int64_t rounds_ = 0, most_rounds_ = 0;
  bool over_ = false;
};

}  // namespace kiln::tune
