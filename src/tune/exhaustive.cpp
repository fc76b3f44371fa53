#include <algorithm>

#include "tune/finals.hpp"

namespace kiln::tune {
namespace {

constexpr double far_out_of_reach = 4;    // times the leader's median, in the first run
constexpr double hopeless = 1.5;          // the same, in the fastest of the first runs
constexpr std::int64_t first_rounds = 5;  // what the estimate of one run comes from
constexpr double budget_ns = 25e6;        // of one candidate
constexpr std::int64_t least_rounds = 9, most_rounds = 21;

class Exhaustive final : public Search {
 public:
  explicit Exhaustive(std::size_t candidates) : scores_(candidates) {}

  std::optional<Ask> next() override {
    for (; current_ < scores_.size(); ++current_, taken_ = 0) {
      const std::int64_t more = rounds_deserved() - taken_;
      if (more > 0) {
        taken_ += more;
        return Ask{{current_}, more};
      }
      scores_.eliminate();
    }
    if (!finals_) finals_.emplace(scores_);
    return finals_->next();
  }

  void report(std::size_t candidate, std::span<const double> samples_ns) override {
    scores_.add(candidate, samples_ns);
  }
  void report_inside(std::size_t candidate, std::span<const double> samples_ns) override {
    finals_->report_inside(candidate, samples_ns);
  }
  void hurry() override { current_ = scores_.size(); }
  void reject(std::size_t candidate) override { scores_.reject(candidate); }
  [[nodiscard]] bool contends(std::size_t candidate) const override { return scores_.contends(candidate); }
  [[nodiscard]] const Cost& cost(std::size_t candidate) const override { return scores_.cost(candidate); }
  [[nodiscard]] double weighed_ns(std::size_t candidate) const override {
    return finals_ ? finals_->weighed_ns(candidate) : scores_.cost(candidate).median_ns;
  }
  [[nodiscard]] std::vector<std::size_t> upcoming() const override {
    std::vector<std::size_t> rest;
    for (std::size_t i = current_; i < scores_.size(); ++i)
      if (scores_.is_untried(i)) rest.push_back(i);
    return rest;
  }
  [[nodiscard]] std::optional<std::size_t> winner(std::span<const Burden> burdens) const override {
    return finals_ ? finals_->winner(burdens) : std::nullopt;
  }

 private:
  /// How many samples the current candidate is worth, after those that it has.
  [[nodiscard]] std::int64_t rounds_deserved() const {
    if (taken_ == 0) return 1;
    if (!scores_.contends(current_)) return 0;
    const Cost& cost = scores_.cost(current_);
    const double best = scores_.cost(*scores_.leader()).median_ns;
    if (taken_ < first_rounds) return cost.median_ns > far_out_of_reach * best ? taken_ : first_rounds;
    if (taken_ == first_rounds && cost.low_ns <= hopeless * best)
      return std::clamp(static_cast<std::int64_t>(budget_ns / std::max(cost.median_ns, 1.0)), least_rounds,
                        most_rounds);
    return taken_;
  }

  Scoreboard scores_;
  std::size_t current_ = 0;
  std::int64_t taken_ = 0;  // samples of the current one
  std::optional<Finals> finals_;
};

}  // namespace

std::unique_ptr<Search> exhaustive(std::size_t candidates) { return std::make_unique<Exhaustive>(candidates); }

}  // namespace kiln::tune
