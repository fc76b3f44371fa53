// Racing: takes few samples of the candidates that the forecast expects to be fast, and corrects the forecast by them.
// A round brings in some candidates, its newcomers. Own candidates are those that need no library.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "tune/forecast.hpp"
#include "tune/last_comparison.hpp"
#include "tune/tolerances.hpp"

namespace kiln::tune {
namespace {

class Racing final : public Search {
 public:
  Racing(Expectations expectations, const RacingLimits& limits)
      : scores_(expectations.candidates(), expectations.sizes()),
        forecast_(std::move(expectations)),
        limits_(limits),
        random_(limits.seed),
        best_(scores_.sizes()) {}

  std::optional<Ask> next() override {
    reference_samples_.clear();
    if (last_) return last_->next();
    if (!std::exchange(is_settling_, true))
      if (Ask more = beside_reference(hopeful(newcomers_), more_samples); !more.points.empty()) return more;
    settle();
    is_settling_ = false;
    newcomers_ = std::exchange(queued_, {});
    if (has_ended()) {
      count(newcomers_, -1);  // they were chosen ahead
      newcomers_.clear();
    }
    if (newcomers_.empty()) newcomers_ = nominate();
    if (scores_.sizes() > 1) queued_ = nominate();
    if (!newcomers_.empty()) {
      is_spread_ = false;
      return beside_reference(worthwhile(newcomers_), 1);
    }
    if (scores_.sizes() > 1 && !finishes_early_ && !std::exchange(is_spread_, true))
      if (Ask more = beside_reference(of_leaders_elsewhere(), 1 + more_samples); !more.points.empty()) return more;
    references_.clear();
    last_.emplace(scores_, forecast_.expectations().of_libraries);
    return last_->next();
  }

  void report(Point point, std::span<const double> samples_ns) override {
    if (last_) return scores_.add(point, samples_ns);
    if (const auto reference = references_.find(point.size);
        reference != references_.end() && reference->second == point.candidate) {
      reference_samples_[point.size].assign(samples_ns.begin(), samples_ns.end());
      return;
    }
    scores_.add(point, at_reference(point.size, samples_ns));
    if (!samples_ns.empty()) forecast_.learn(point, scores_.cost(point).median_ns);
  }
  void finish_early() override { finishes_early_ = true; }
  void reject(std::size_t candidate) override { scores_.reject(candidate); }
  [[nodiscard]] bool contends(std::size_t candidate) const override {
    return scores_.contends(candidate) || (!last_ && may_serve(candidate));
  }
  [[nodiscard]] const Cost& cost(Point point) const override { return scores_.cost(point); }
  [[nodiscard]] std::vector<Comparison> comparisons() const override {
    return last_ ? last_->comparisons() : std::vector<Comparison>(scores_.sizes());
  }
  [[nodiscard]] std::vector<std::size_t> upcoming() const override {
    if (has_ended()) return {};
    if (rounds_ == 0) return nominate_first();
    if (scores_.sizes() > 1) return queued_;
    if (has_tried_all_it_may()) return {};
    std::vector<std::size_t> likely;
    const std::vector<std::size_t> ranked = untried_by_promise();
    const auto add = [&](std::size_t candidate) {
      if (likely.size() < compiles_ahead && !contains(likely, candidate)) likely.push_back(candidate);
    };
    // As nominate_next() continues: with each candidate of a new kind, a neighbour of the best.
    auto near = ranked.begin();
    const auto leader = best_own(0);
    for (const std::size_t candidate : first_of_new_kinds(ranked)) {
      if (likely.size() >= compiles_ahead) break;
      add(candidate);
      near = std::find_if(near, ranked.end(),
                          [&](std::size_t each) { return leader && forecast_.are_neighbours(each, *leader); });
      if (near != ranked.end()) add(*near++);
    }
    for (std::size_t candidate : ranked) add(candidate);
    return likely;
  }

 private:
  /// Returns where newcomers take their first samples: where they are legal and expected near the best; each somewhere.
  [[nodiscard]] std::vector<Point> worthwhile(std::span<const std::size_t> candidates) const {
    std::vector<Point> points;
    for (std::size_t size = 0; size < scores_.sizes(); ++size) {
      const double limit = worth_a_sample * scores_.best_ns(size);
      for (const std::size_t candidate : candidates)
        if (const Point point{candidate, size}; is_worth_a_sample(point) && forecast_.expected_ns(point) <= limit)
          points.push_back(point);
    }
    for (const std::size_t candidate : candidates)
      if (std::ranges::find(points, candidate, &Point::candidate) == points.end())
        if (const auto best = most_promising(candidate)) points.push_back(*best);
    return points;
  }
  /// Returns the legal size at which the candidate's expected time is lowest against reference_ns().
  [[nodiscard]] std::optional<Point> most_promising(std::size_t candidate) const {
    std::optional<Point> best;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t size = 0; size < scores_.sizes(); ++size) {
      const Point point{candidate, size};
      if (!is_worth_a_sample(point)) continue;
      const double behind = forecast_.expected_ns(point) / reference_ns(size);
      if (best && behind >= least) continue;
      best = point;
      least = behind;
    }
    return best;
  }
  [[nodiscard]] bool is_worth_a_sample(Point point) const {
    const Expectations& all = forecast_.expectations();
    return forecast_.is_legal(point) &&
           (all.proposed_near.empty() || all.one_serves_all || all.proposed_near[point.candidate][point.size]);
  }
  /// Returns the best time measured at a size, or the best expected where nothing was measured.
  [[nodiscard]] double reference_ns(std::size_t size) const {
    if (const double best = scores_.best_ns(size); std::isfinite(best)) return best;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < scores_.candidates(); ++i)
      if (forecast_.is_legal({i, size})) least = std::min(least, forecast_.expectations().expected_ns[i][size]);
    return least;
  }

  /// Adds the leader of each size in front of the points, so that newcomers are compared with it at the present clock.
  /// A device that slows down under load would otherwise favour the candidates timed first.
  Ask beside_reference(const std::vector<Point>& points, std::int64_t rounds) {
    Ask ask{{}, rounds};
    references_.clear();
    for (const Point& each : points) {
      if (references_.contains(each.size)) continue;
      const auto leader = scores_.leader(each.size);
      if (!leader || std::ranges::find(points, Point{*leader, each.size}) != points.end()) continue;
      references_.emplace(each.size, *leader);
      reference_scores_[each.size] = scores_.best_ns(each.size);
      ask.points.push_back({*leader, each.size});
    }
    ask.points.insert(ask.points.end(), points.begin(), points.end());
    std::ranges::stable_sort(ask.points, {}, &Point::size);  // what is compared runs together
    return ask;
  }
  /// Scales samples to the clock at which the reference candidate took the time in the scores.
  [[nodiscard]] std::vector<double> at_reference(std::size_t size, std::span<const double> samples_ns) const {
    std::vector<double> result(samples_ns.begin(), samples_ns.end());
    const auto reference = reference_samples_.find(size);
    if (reference == reference_samples_.end()) return result;
    for (std::size_t i = 0; i < std::min(result.size(), reference->second.size()); ++i)
      result[i] *=
          std::clamp(reference_scores_.at(size) / std::max(reference->second[i], 1.0), 1 / most_drift, most_drift);
    return result;
  }

  /// Returns the newcomers' points whose first sample is near enough to the best for more samples.
  [[nodiscard]] std::vector<Point> hopeful(const std::vector<std::size_t>& newcomers) const {
    std::vector<Point> result;
    for (std::size_t size = 0; size < scores_.sizes(); ++size)
      for (std::size_t candidate : newcomers)
        if (const Point point{candidate, size};
            scores_.contends(point) && scores_.cost(point).median_ns <= out_of_reach * scores_.best_ns(size))
          result.push_back(point);
    return result;
  }

  /// Returns the sizes at which the fastest candidates of others were not timed, as they were expected behind there:
  /// all of them where one is to serve all, else those where they may win as far as their own measurements tell. Models
  /// err most between configs, so what was expected of a leader before it was measured says little.
  [[nodiscard]] std::vector<Point> of_leaders_elsewhere() const {
    std::set<std::size_t> leaders;
    for (std::size_t size = 0; size < scores_.sizes(); ++size) {
      std::vector<std::pair<double, std::size_t>> ranked;
      for (std::size_t i = 0; i < scores_.candidates(); ++i)
        if (const Cost& cost = scores_.cost({i, size}); !cost.failed() && !scores_.is_rejected(i))
          ranked.emplace_back(cost.median_ns, i);
      std::ranges::sort(ranked);
      for (std::size_t i = 0; i < std::min(most_leaders, ranked.size()); ++i) leaders.insert(ranked[i].second);
    }
    std::vector<Point> points;
    for (std::size_t size = 0; size < scores_.sizes(); ++size)
      for (const std::size_t candidate : leaders)
        if (const Point point{candidate, size};
            is_worth_a_sample(point) && scores_.cost(point).failed() &&
            (forecast_.expectations().one_serves_all ||
             forecast_.expected_by_own_ns(point) <= worth_of_leader * scores_.best_ns(size)))
          points.push_back(point);
    return points;
  }

  struct Best {
    double any_ns = std::numeric_limits<double>::infinity(), own_ns = any_ns;
  };
  /// After a round: eliminates candidates, and counts the trials since the last improvement.
  void settle() {
    double gain = 0;
    const auto improve = [&](double& before, double now) {
      if (!std::isfinite(now)) return;
      if (std::isfinite(before) && now < improvement * before) gain += std::log(before / now);
      if (!std::isfinite(before)) gain = std::numeric_limits<double>::infinity();
      before = std::min(before, now);
    };
    for (std::size_t size = 0; size < scores_.sizes(); ++size) {
      improve(best_[size].any_ns, scores_.best_ns(size));
      const auto own = best_own(size);
      if (own) improve(best_[size].own_ns, scores_.cost({*own, size}).median_ns);
    }
    // The more sizes, the more often one of them improves by chance.
    const auto sizes = static_cast<double>(scores_.sizes());
    const bool has_improved = gain > (sizes > 1 ? std::max(improvement_of_few, sizes * improvement_of_many) : 0);
    // A library's come many at a time, and say nothing about kernels that were not tried. They count where no kernel is
    // left.
    const auto all = static_cast<std::int64_t>(newcomers_.size()), own = all - count_of_libraries(newcomers_);
    without_improvement_ = has_improved ? 0 : without_improvement_ + (own > 0 ? own : all);
    scores_.eliminate();
  }
  /// Whether the candidate is about as fast as the best own candidate, or as the best, at some size.
  [[nodiscard]] bool may_serve(std::size_t candidate) const {
    for (std::size_t size = 0; size < scores_.sizes(); ++size) {
      const Cost& cost = scores_.cost({candidate, size});
      if (cost.failed()) continue;
      const auto own = best_own(size);
      const double best = own ? scores_.cost({*own, size}).median_ns : scores_.best_ns(size);
      if (cost.median_ns <= serving_within * best) return true;
    }
    return false;
  }
  /// Returns the fastest own candidate at a size.
  [[nodiscard]] std::optional<std::size_t> best_own(std::size_t size) const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < scores_.candidates(); ++i) {
      const Cost& cost = scores_.cost({i, size});
      if (!cost.failed() && !is_library(i) && (!best || cost.median_ns < scores_.cost({*best, size}).median_ns))
        best = i;
    }
    return best;
  }

  [[nodiscard]] bool is_library(std::size_t candidate) const {
    return contains(forecast_.expectations().of_libraries, candidate);
  }

  /// Whether the candidate is a library's alone, which has no model.
  [[nodiscard]] bool is_unmodelled(std::size_t candidate) const {
    return is_library(candidate) && !contains(forecast_.expectations().modelled_libraries, candidate);
  }

  /// Returns the open candidates by their lowest expected time against reference_ns(). A library alone has no model,
  /// and its estimate, the time at the device's limits, promises more than any kernel keeps: its algorithms are
  /// returned where no other candidate is open.
  [[nodiscard]] std::vector<std::size_t> untried_by_promise() const {
    std::vector<std::size_t> modelled = ranked_by_promise(false);
    return modelled.empty() ? ranked_by_promise(true) : modelled;
  }
  [[nodiscard]] std::vector<std::size_t> ranked_by_promise(bool unmodelled) const {
    std::vector<double> reference;
    for (std::size_t size = 0; size < scores_.sizes(); ++size) reference.push_back(reference_ns(size));
    std::vector<std::pair<double, std::size_t>> ranked;
    for (std::size_t i = 0; i < scores_.candidates(); ++i) {
      if (!is_open(i) || is_unmodelled(i) != unmodelled) continue;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t size = 0; size < reference.size(); ++size)
        if (forecast_.is_legal({i, size})) least = std::min(least, forecast_.expected_ns({i, size}) / reference[size]);
      ranked.emplace_back(least, i);
    }
    std::sort(ranked.begin(), ranked.end());
    std::vector<std::size_t> order;
    for (const auto& each : ranked) order.push_back(each.second);
    return order;
  }

  [[nodiscard]] std::vector<std::size_t> nominate_first() const {
    std::vector<std::size_t> first{0};
    std::size_t most = first_newcomers;
    const auto add = [&](std::size_t candidate) {
      if (first.size() <= most && !contains(first, candidate)) first.push_back(candidate);
    };
    const auto is_near = [&](std::size_t candidate) {
      return std::any_of(first.begin() + 1, first.end(),
                         [&](std::size_t other) { return forecast_.are_neighbours(candidate, other); });
    };
    for (std::size_t each : forecast_.expectations().tried_first)
      if (!contains(first, each)) first.push_back(each);
    // The fastest own candidate expected at each size.
    if (scores_.sizes() > 1) most = first.size() + most_newcomers;
    for (std::size_t size = scores_.sizes(); scores_.sizes() > 1 && size-- > 0;) {
      std::optional<std::size_t> best;
      for (std::size_t i = 0; i < scores_.candidates(); ++i)
        if (forecast_.is_legal({i, size}) && is_open(i) && !is_library(i) &&
            (!best || forecast_.expected_ns({i, size}) < forecast_.expected_ns({*best, size})))
          best = i;
      if (best) add(*best);
    }
    most = std::max(first_newcomers, first.size() - 1);
    // No two neighbours, which are expected to take about the same; then any.
    const std::vector<std::size_t> ranked = untried_by_promise();
    for (std::size_t candidate : ranked)
      if (!is_near(candidate)) add(candidate);
    for (std::size_t candidate : ranked) add(candidate);
    return first;
  }

  [[nodiscard]] bool has_ended() const {
    return last_ || finishes_early_ ||
           (without_improvement_ >= limits_.patience && scores_.leader(scores_.sizes() - 1));
  }
  [[nodiscard]] bool has_tried_all_it_may() const { return limits_.trials > 0 && tried_ >= limits_.trials; }
  /// Whether the candidate is neither tried nor chosen for this round or the next.
  [[nodiscard]] bool is_open(std::size_t candidate) const {
    return scores_.is_untried(candidate) && !contains(newcomers_, candidate) && !contains(queued_, candidate);
  }

  std::vector<std::size_t> nominate() {
    if (has_ended() || has_tried_all_it_may()) return {};
    std::vector<std::size_t> round = rounds_++ == 0 ? nominate_first() : nominate_next();
    if (limits_.trials > 0) round = within_trials(round);
    count(round, 1);
    return round;
  }
  /// Returns the first of the round that the limit of trials allows. A library's algorithms get half of all trials at
  /// most while there are kernels to try.
  [[nodiscard]] std::vector<std::size_t> within_trials(std::span<const std::size_t> round) const {
    std::vector<std::size_t> chosen, passed_over;
    std::int64_t of_libraries = limits_.trials / 2 - tried_of_libraries_;
    for (const std::size_t each : round)
      (is_unmodelled(each) && of_libraries-- <= 0 ? passed_over : chosen).push_back(each);
    bool kernels_left = false;
    for (std::size_t i = 0; i < scores_.candidates(); ++i)
      kernels_left = kernels_left || (is_open(i) && !is_unmodelled(i) && !contains(chosen, i));
    if (!kernels_left) chosen.insert(chosen.end(), passed_over.begin(), passed_over.end());
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(limits_.trials - tried_)));
    return chosen;
  }
  [[nodiscard]] std::int64_t count_of_libraries(std::span<const std::size_t> candidates) const {
    return std::ranges::count_if(candidates, [&](std::size_t each) { return is_unmodelled(each); });
  }
  /// Counts trials that are chosen (`sign` 1), or that were and do not come (-1).
  void count(std::span<const std::size_t> candidates, std::int64_t sign) {
    tried_ += sign * static_cast<std::int64_t>(candidates.size());
    tried_of_libraries_ += sign * count_of_libraries(candidates);
  }

  /// Returns the next newcomers, in pairs: the most promising candidate of a new kind, and the most promising neighbour
  /// of the best. In some rounds the second is drawn from the better half. With several sizes a round has as many pairs
  /// as compile at once beside the round before, which is not yet timed.
  std::vector<std::size_t> nominate_next() {
    std::vector<std::size_t> ranked = untried_by_promise(), chosen;
    const std::vector<std::size_t> new_kinds = first_of_new_kinds(ranked);
    const std::size_t pairs = scores_.sizes() > 1 ? most_pairs : 1;
    std::set<std::size_t> compiled = kernels_seen();
    std::size_t compiles = 0;
    const auto take = [&](std::vector<std::size_t>::iterator which) {
      if (compiled.insert(forecast_.expectations().kernel[*which]).second) ++compiles;
      chosen.push_back(*which);
      ranked.erase(which);
    };
    for (std::size_t pair = 0; pair < pairs && compiles < compiles_a_round() && !ranked.empty(); ++pair) {
      const auto next = std::ranges::find_if(new_kinds, [&](std::size_t each) { return contains(ranked, each); });
      take(next != new_kinds.end() ? std::ranges::find(ranked, *next) : ranked.begin());
      if (ranked.empty()) break;
      const bool draws = pair == 0 && rounds_ % rounds_a_draw == 0 && ranked.size() > 1;
      take(draws ? ranked.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                        0, static_cast<std::ptrdiff_t>(ranked.size() / 2))(random_)
                 : neighbour_of_best(ranked, static_cast<std::size_t>(rounds_) * pairs + pair));
    }
    // A library's algorithms need no compile and come in the library's own order: where one is near the best, the next
    // ones follow.
    if (const auto& libraries = forecast_.expectations().of_libraries; is_near_best(libraries)) {
      std::size_t more = library_newcomers();
      for (const std::size_t each : libraries)
        if (more > 0 && is_open(each) && is_unmodelled(each) && !contains(chosen, each)) {
          chosen.push_back(each);
          --more;
        }
    }
    return chosen;
  }
  [[nodiscard]] std::size_t library_newcomers() const {
    double each_ns = 1;
    for (std::size_t size = 0; size < scores_.sizes(); ++size)
      if (const double best = reference_ns(size); std::isfinite(best)) each_ns += best;
    return std::clamp(static_cast<std::size_t>(library_budget_ns / each_ns), least_library_newcomers,
                      most_library_newcomers);
  }
  /// With several sizes two rounds are under way at a time.
  [[nodiscard]] std::size_t compiles_a_round() const { return std::max<std::size_t>(limits_.compiles_at_once / 2, 2); }
  [[nodiscard]] std::set<std::size_t> kernels_seen() const {
    std::set<std::size_t> seen;
    for (std::size_t i = 0; i < scores_.candidates(); ++i)
      if (!is_open(i)) seen.insert(forecast_.expectations().kernel[i]);
    return seen;
  }
  [[nodiscard]] bool is_near_best(std::span<const std::size_t> candidates) const {
    for (std::size_t size = 0; size < scores_.sizes(); ++size)
      for (const std::size_t each : candidates)
        if (scores_.cost({each, size}).median_ns <= within_reach * scores_.best_ns(size)) return true;
    return false;
  }
  /// Returns the first candidate of each kind of which none was tried. The model cannot tell many configs apart, such
  /// as orders of tiles. A search that tried them in turn would end before it tried another tile.
  [[nodiscard]] std::vector<std::size_t> first_of_new_kinds(std::span<const std::size_t> ranked) const {
    std::set<double> seen;
    for (std::size_t i = 0; i < scores_.candidates(); ++i)
      if (!is_open(i) && !scores_.is_rejected(i)) seen.insert(forecast_.kind(i));
    std::vector<std::size_t> first;
    for (const std::size_t candidate : ranked)
      if (seen.insert(forecast_.kind(candidate)).second) first.push_back(candidate);
    return first;
  }

  /// Returns the most promising neighbour of the best own candidate at one size, else the most promising candidate.
  /// Turns go through the sizes from the bucket's upper edge down.
  [[nodiscard]] std::vector<std::size_t>::iterator neighbour_of_best(std::vector<std::size_t>& ranked,
                                                                     std::size_t turn) const {
    const auto of = best_own(scores_.sizes() - 1 - turn % scores_.sizes());
    const auto near =
        std::ranges::find_if(ranked, [&](std::size_t each) { return of && forecast_.are_neighbours(each, *of); });
    return near != ranked.end() ? near : ranked.begin();
  }

  Scoreboard scores_;
  Forecast forecast_;
  RacingLimits limits_;
  std::mt19937_64 random_;
  std::vector<std::size_t> newcomers_;              // of this round
  std::vector<std::size_t> queued_;                 // of the next round, which is chosen ahead with several sizes
  std::map<std::size_t, std::size_t> references_;   // by size: the leader when the round began
  std::map<std::size_t, double> reference_scores_;  // by size: that leader's median then, ns
  std::map<std::size_t, std::vector<double>> reference_samples_;  // by size: that leader's samples of this ask, ns
  bool is_settling_ = true;                                       // the newcomers have all their samples
  bool finishes_early_ = false;
  bool is_spread_ = false;  // the leaders were timed at other sizes
  std::int64_t rounds_ = 0, tried_ = 0, tried_of_libraries_ = 0;
  std::int64_t without_improvement_ = 0;  // trials since the last improvement
  std::vector<Best> best_;                // by size
  std::optional<LastComparison> last_;
};

}  // namespace

std::unique_ptr<Search> racing(Expectations expectations, const RacingLimits& limits) {
  return std::make_unique<Racing>(std::move(expectations), limits);
}

}  // namespace kiln::tune
