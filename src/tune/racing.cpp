// Racing: a few samples each for those that are expected to be fast, expectations corrected by what their neighbours cost.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "tune/finals.hpp"

namespace kiln::tune {
namespace {

constexpr std::int64_t more_rounds = 2;  // of a heat, after the first, for those that are not hopeless
constexpr double out_of_reach = 1.5;     // times the leader's median
constexpr std::size_t first_heat = 4;    // besides the baseline: favourites, then the best expected
constexpr std::size_t later_heat = 2;
constexpr std::size_t compiles_ahead =
    10;                                   // of those that are expected next: a compile takes longer than several heats
constexpr std::int64_t heats_a_draw = 4;  // in each so many, one is drawn whatever is expected of it
constexpr double improvement = 0.99;      // of the leader's median: less is no news

/// Expectations, corrected by what was measured: the logarithm of measured over expected is taken to vary slowly over the space, so a
/// candidate's is the mean of those measured, weighted by how few steps away they are.
class Forecast {
 public:
  explicit Forecast(Outlook outlook) : outlook_(std::move(outlook)) {
    // Of what no estimate can be made, nothing good is expected.
    double worst = 1;
    for (double each : outlook_.expected_ns)
      if (std::isfinite(each)) worst = std::max(worst, each);
    for (double& each : outlook_.expected_ns)
      if (!std::isfinite(each) || each <= 0) each = 2 * worst;
  }

  void learn(std::size_t candidate, double measured_ns) {
    known_.push_back({candidate, std::log(measured_ns / outlook_.expected_ns[candidate])});
  }
  [[nodiscard]] double expected_ns(std::size_t candidate) const {
    double weights = 0, sum = 0;
    for (const Known& each : known_) {
      const double weight = std::exp(-distance(candidate, each.candidate));
      weights += weight;
      sum += weight * each.residual;
    }
    return outlook_.expected_ns[candidate] * (weights > 0 ? std::exp(sum / weights) : 1.0);
  }
  [[nodiscard]] const Outlook& outlook() const noexcept { return outlook_; }
  /// Whether they differ in one parameter alone, by however many steps.
  [[nodiscard]] bool are_neighbours(std::size_t a, std::size_t b) const {
    const auto& x = outlook_.position[a];
    const auto& y = outlook_.position[b];
    if (x.front() != y.front()) return false;
    std::size_t different = 0;
    for (std::size_t i = 1; i < x.size(); ++i) different += x[i] != y[i] ? 1 : 0;
    return different == 1;
  }

 private:
  struct Known {
    std::size_t candidate;
    double residual;
  };
  [[nodiscard]] double distance(std::size_t a, std::size_t b) const {
    const auto& x = outlook_.position[a];
    const auto& y = outlook_.position[b];
    constexpr double another_implementation = 8;
    if (x.front() != y.front()) return another_implementation;
    double steps = 0;
    for (std::size_t i = 1; i < x.size(); ++i) steps += std::min<double>(2, std::abs(static_cast<double>(x[i] - y[i])));
    return steps;
  }

  Outlook outlook_;
  std::vector<Known> known_;
};

class Racing final : public Search {
 public:
  Racing(Outlook outlook, const RacingLimits& limits)
      : scores_(outlook.expected_ns.size()), forecast_(std::move(outlook)), limits_(limits), random_(limits.seed) {}

  std::optional<Ask> next() override {
    pace_.clear();
    if (finals_) return finals_->next();
    if (Ask more{hopeful(), more_rounds}; !std::exchange(heat_, {}).empty() && !more.candidates.empty()) return more;
    settle();
    heat_ = nominate();
    if (!heat_.empty()) {
      pace_with_leader();
      return Ask{heat_, 1};
    }
    pacemaker_.reset();
    finals_.emplace(scores_);
    return finals_->next();
  }

  void report(std::size_t candidate, std::span<const double> samples_ns) override {
    if (finals_) return scores_.add(candidate, samples_ns);
    if (candidate == pacemaker_) {
      pace_.assign(samples_ns.begin(), samples_ns.end());
      return;
    }
    scores_.add(candidate, at_pace(samples_ns));
    forecast_.learn(candidate, scores_.cost(candidate).median_ns);
  }
  void report_inside(std::size_t candidate, std::span<const double> samples_ns) override {
    finals_->report_inside(candidate, samples_ns);
  }
  void hurry() override { hurried_ = true; }
  void reject(std::size_t candidate) override { scores_.reject(candidate); }
  [[nodiscard]] bool contends(std::size_t candidate) const override { return scores_.contends(candidate); }
  [[nodiscard]] const Cost& cost(std::size_t candidate) const override { return scores_.cost(candidate); }
  [[nodiscard]] double weighed_ns(std::size_t candidate) const override {
    return finals_ ? finals_->weighed_ns(candidate) : scores_.cost(candidate).median_ns;
  }
  [[nodiscard]] std::vector<std::size_t> upcoming() const override {
    if (is_over()) return {};
    std::vector<std::size_t> likely = heats_ == 0 ? nominate_first() : std::vector<std::size_t>();
    const std::size_t wanted = likely.size() + compiles_ahead;
    const std::vector<std::size_t> ranked = untried_by_expectation();
    const auto add = [&](std::size_t candidate) {
      if (likely.size() < wanted && std::ranges::find(likely, candidate) == likely.end()) likely.push_back(candidate);
    };
    // As nominate_next goes on: beside each that tells something new, a neighbour of the leader.
    auto near = ranked.begin();
    const auto leader = best_own();
    for (const std::size_t candidate : news_of(ranked)) {
      if (likely.size() >= wanted) break;
      add(candidate);
      near = std::find_if(near, ranked.end(),
                          [&](std::size_t each) { return leader && forecast_.are_neighbours(each, *leader); });
      if (near != ranked.end()) add(*near++);
    }
    for (std::size_t candidate : ranked) add(candidate);
    return likely;
  }
  [[nodiscard]] std::optional<std::size_t> winner(std::span<const Burden> burdens) const override {
    return finals_ ? finals_->winner(burdens) : std::nullopt;
  }

 private:
  /// Lets the leader run in the heat, first in each round, so that newcomers are compared with it as the clock is now: a device that
  /// warms up under long kernels would leave the lead to those that came early.
  void pace_with_leader() {
    pacemaker_ = scores_.leader();
    if (!pacemaker_) return;
    reference_ns_ = scores_.cost(*pacemaker_).median_ns;
    heat_.insert(heat_.begin(), *pacemaker_);
  }
  /// Samples of the heat as they would have been when the pacemaker took what the scores say.
  [[nodiscard]] std::vector<double> at_pace(std::span<const double> samples_ns) const {
    std::vector<double> result(samples_ns.begin(), samples_ns.end());
    for (std::size_t i = 0; i < std::min(result.size(), pace_.size()); ++i)
      result[i] *= reference_ns_ / std::max(pace_[i], 1.0);
    return result;
  }

  /// Of the heat, those that one sample leaves a chance; nobody where that is the pacemaker alone.
  [[nodiscard]] std::vector<std::size_t> hopeful() const {
    std::vector<std::size_t> result;
    const auto leader = scores_.leader();
    for (std::size_t candidate : heat_)
      if (scores_.contends(candidate) &&
          scores_.cost(candidate).median_ns <= out_of_reach * scores_.cost(*leader).median_ns)
        result.push_back(candidate);
    if (pacemaker_ && result.size() == 1 && result.front() == *pacemaker_) result.clear();
    return result;
  }

  /// After a heat: who is out, and whether it brought anything.
  void settle() {
    const auto leader = scores_.leader();
    if (!leader) return;
    const double best = scores_.cost(*leader).median_ns;
    const auto own = best_own();
    const double best_of_own = own ? scores_.cost(*own).median_ns : std::numeric_limits<double>::infinity();
    idle_ = best < improvement * best_ns_ || best_of_own < improvement * best_own_ns_ ? 0 : idle_ + tried_ - settled_;
    settled_ = tried_;
    best_ns_ = std::min(best_ns_, best);
    best_own_ns_ = std::min(best_own_ns_, best_of_own);
    scores_.eliminate();
  }
  /// Of those that need no library: where one leads, the fastest of the others becomes its runner-up.
  [[nodiscard]] std::optional<std::size_t> best_own() const {
    const std::vector<std::size_t>& libraries = forecast_.outlook().of_libraries;
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (!scores_.cost(i).failed() && std::find(libraries.begin(), libraries.end(), i) == libraries.end() &&
          (!best || scores_.cost(i).median_ns < scores_.cost(*best).median_ns))
        best = i;
    return best;
  }

  [[nodiscard]] std::vector<std::size_t> untried_by_expectation() const {
    std::vector<std::pair<double, std::size_t>> ranked;
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (scores_.is_untried(i)) ranked.emplace_back(forecast_.expected_ns(i), i);
    std::sort(ranked.begin(), ranked.end());
    std::vector<std::size_t> order;
    for (const auto& each : ranked) order.push_back(each.second);
    return order;
  }

  [[nodiscard]] std::vector<std::size_t> nominate_first() const {
    std::vector<std::size_t> heat{0};
    const auto add = [&](std::size_t candidate) {
      if (heat.size() <= first_heat && std::find(heat.begin(), heat.end(), candidate) == heat.end())
        heat.push_back(candidate);
    };
    const auto is_near = [&](std::size_t candidate) {
      return std::any_of(heat.begin() + 1, heat.end(),
                         [&](std::size_t other) { return forecast_.are_neighbours(candidate, other); });
    };
    for (std::size_t favourite : forecast_.outlook().favourites) add(favourite);
    // One of each kind, for neighbours are expected to take about the same; and if there are too few kinds, any.
    const std::vector<std::size_t> ranked = untried_by_expectation();
    for (std::size_t candidate : ranked)
      if (!is_near(candidate)) add(candidate);
    for (std::size_t candidate : ranked) add(candidate);
    return heat;
  }

  [[nodiscard]] bool is_over() const {
    return finals_ || hurried_ || (limits_.trials > 0 && tried_ >= limits_.trials) ||
           (idle_ >= limits_.patience && scores_.leader());
  }

  std::vector<std::size_t> nominate() {
    if (is_over()) return {};
    std::vector<std::size_t> heat = heats_++ == 0 ? nominate_first() : nominate_next();
    if (limits_.trials > 0 && tried_ + static_cast<std::int64_t>(heat.size()) > limits_.trials)
      heat.resize(static_cast<std::size_t>(limits_.trials - tried_));
    tried_ += static_cast<std::int64_t>(heat.size());
    return heat;
  }

  /// The best expected of those that tell something new; and beside it the leader's best expected neighbour, or, now and then, any of
  /// the better half.
  std::vector<std::size_t> nominate_next() {
    std::vector<std::size_t> ranked = untried_by_expectation();
    if (ranked.size() <= later_heat) return ranked;
    if (const auto news = news_of(ranked); !news.empty()) {
      const auto first = std::ranges::find(ranked, news.front());
      std::rotate(ranked.begin(), first, first + 1);
    }
    const std::size_t other = heats_ % heats_a_draw == 0
                                  ? std::uniform_int_distribution<std::size_t>(1, ranked.size() / 2)(random_)
                                  : place_of_neighbour(ranked);
    return {ranked.front(), ranked[other]};
  }
  /// The first of each kind of which none was tried. Of one kind are those of which as much was expected, to the bit: the model cannot tell
  /// them apart, as it cannot in what order tiles are walked. Such configs are many, and a search that takes them in turn ends before it
  /// has seen another tile.
  [[nodiscard]] std::vector<std::size_t> news_of(std::span<const std::size_t> ranked) const {
    const std::vector<double>& expected = forecast_.outlook().expected_ns;
    std::set<double> seen;
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (!scores_.is_untried(i) && !scores_.is_rejected(i)) seen.insert(expected[i]);
    std::vector<std::size_t> news;
    for (const std::size_t candidate : ranked)
      if (seen.insert(expected[candidate]).second) news.push_back(candidate);
    return news;
  }

  [[nodiscard]] std::size_t place_of_neighbour(const std::vector<std::size_t>& ranked) const {
    const auto of = best_own();  // a library's own order tells more of its configs
    for (std::size_t i = 1; of && i < ranked.size(); ++i)
      if (forecast_.are_neighbours(ranked[i], *of)) return i;
    return 1;
  }

  Scoreboard scores_;
  Forecast forecast_;
  RacingLimits limits_;
  std::mt19937_64 random_;
  std::vector<std::size_t> heat_;
  std::optional<std::size_t> pacemaker_;  // the leader when the heat began
  double reference_ns_ = 0;               // its median then
  std::vector<double> pace_;              // its samples of this ask
  bool hurried_ = false;
  std::int64_t heats_ = 0, tried_ = 0, settled_ = 0, idle_ = 0;
  double best_ns_ = std::numeric_limits<double>::infinity(), best_own_ns_ = std::numeric_limits<double>::infinity();
  std::optional<Finals> finals_;
};

}  // namespace

std::unique_ptr<Search> racing(Outlook outlook, const RacingLimits& limits) {
  return std::make_unique<Racing>(std::move(outlook), limits);
}

}  // namespace kiln::tune
