#include <algorithm>

#include "tune/last_comparison.hpp"
#include "tune/tolerances.hpp"

namespace kiln::tune {
namespace {

class Exhaustive final : public Search {
 public:
  explicit Exhaustive(Expectations expectations)
      : expectations_(std::move(expectations)),
        scores_(expectations_.candidates(), expectations_.sizes()),
        taken_(expectations_.sizes()) {}

  std::optional<Ask> next() override {
    for (; current_ < scores_.candidates(); ++current_, size_ = 0) {
      for (; size_ < scores_.sizes(); ++size_) {
        const Point point{current_, size_};
        const std::int64_t more = rounds_deserved(point) - taken_[size_];
        if (more <= 0) continue;
        taken_[size_] += more;
        return Ask{{point}, more};
      }
      scores_.eliminate();
      std::ranges::fill(taken_, 0);
    }
    if (!last_) last_.emplace(scores_, expectations_.of_libraries);
    return last_->next();
  }

  void report(Point point, std::span<const double> samples_ns) override { scores_.add(point, samples_ns); }
  void finish_early() override { current_ = scores_.candidates(); }
  void reject(std::size_t candidate) override { scores_.reject(candidate); }
  [[nodiscard]] bool contends(std::size_t candidate) const override { return scores_.contends(candidate); }
  [[nodiscard]] const Cost& cost(Point point) const override { return scores_.cost(point); }
  [[nodiscard]] std::vector<Comparison> comparisons() const override {
    return last_ ? last_->comparisons() : std::vector<Comparison>(scores_.sizes());
  }
  [[nodiscard]] std::vector<std::size_t> upcoming() const override {
    std::vector<std::size_t> rest;
    for (std::size_t i = current_; i < scores_.candidates(); ++i)
      if (scores_.is_untried(i)) rest.push_back(i);
    return rest;
  }

 private:
  /// Returns how many samples the point gets in all, given those that it has.
  [[nodiscard]] std::int64_t rounds_deserved(Point point) const {
    const std::int64_t taken = taken_[point.size];
    if (!expectations_.legal[point.candidate][point.size] || scores_.is_rejected(point.candidate)) return 0;
    if (taken == 0) return 1;
    if (!scores_.contends(point)) return 0;
    const Cost& cost = scores_.cost(point);
    const double best = scores_.best_ns(point.size);
    if (taken < first_rounds) return cost.median_ns > far_out_of_reach * best ? taken : first_rounds;
    if (taken == first_rounds && cost.low_ns <= hopeless * best)
      return std::clamp(static_cast<std::int64_t>(candidate_budget_ns / std::max(cost.median_ns, 1.0)), least_rounds,
                        most_rounds);
    return taken;
  }

  Expectations expectations_;
  Scoreboard scores_;
  std::size_t current_ = 0, size_ = 0;
  std::vector<std::int64_t> taken_;  // samples of the current candidate, by size
  std::optional<LastComparison> last_;
};

}  // namespace

std::unique_ptr<Search> exhaustive(Expectations expectations) {
  return std::make_unique<Exhaustive>(std::move(expectations));
}

}  // namespace kiln::tune
