// Racing: a few samples each for those that are expected to be fast, expectations corrected by what their neighbours cost.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "tune/last_comparison.hpp"

namespace kiln::tune {
namespace {

constexpr std::int64_t more_rounds = 2;     // after a newcomer's first sample, where it is not hopeless
constexpr double out_of_reach = 1.2;        // times the best at a length: so far behind, one sample is enough
constexpr double worth_a_sample = 1.2;      // times the best at a length, as is expected of a newcomer
constexpr std::size_t first_newcomers = 4;  // besides the baseline: favourites, then the best expected
constexpr std::size_t most_newcomers = 12;  // of the first round besides favourites: the best expected of each length
constexpr std::size_t compiles_ahead =
    10;  // of those that are expected next: a compile takes longer than several rounds
constexpr std::int64_t rounds_a_draw = 4;     // in each so many, one is drawn whatever is expected of it
constexpr std::size_t most_pairs = 8;         // of a round: some of them share machine code with those tried before
constexpr std::size_t library_newcomers = 3;  // of a round
constexpr double near_best = 1.1;             // times the best at a length
constexpr double about_as_fast = 1.05;        // as LastComparison has it, and a little more
constexpr double most_drift = 1.25;           // of a clock between two rounds; beyond, a sample was disturbed
constexpr double improvement = 0.99;          // of the best at a length: less is no news
constexpr double improvement_of_few = 0.03,
                 improvement_of_many = 0.008;  // over several lengths in all; of many, a length

/// Expectations, corrected by what was measured: the logarithm of measured over expected is taken to vary slowly over the space, so a
/// candidate's is the mean of those measured, weighted by how few steps away they are. It is one number for all lengths: between them the
/// model is trusted.
class Forecast {
 public:
  explicit Forecast(Expectations expectations)
      : expectations_(std::move(expectations)), lasting_(expectations_.candidates()) {
    // Of what no estimate can be made, nothing good is expected.
    for (std::size_t length = 0; length < expectations_.lengths(); ++length) {
      double worst = 1;
      for (const auto& each : expectations_.expected_ns)
        if (std::isfinite(each[length])) worst = std::max(worst, each[length]);
      for (auto& each : expectations_.expected_ns)
        if (!std::isfinite(each[length]) || each[length] <= 0) each[length] = 2 * worst;
    }
    for (std::size_t i = expectations_.kernel.size(); i < lasting_.size(); ++i) expectations_.kernel.push_back(i);
    for (std::size_t i = 0; i < lasting_.size(); ++i)
      for (const double each : expectations_.expected_ns[i]) lasting_[i].kind += std::log(each);
  }

  void learn(Point point, double measured_ns) {
    Lasting& of = lasting_[point.candidate];
    of.residual_sum += std::log(measured_ns / expectations_.expected_ns[point.candidate][point.length]);
    if (of.residuals++ == 0) known_.push_back(point.candidate);
    ++news_;
  }
  [[nodiscard]] double expected_ns(Point point) const {
    return expectations_.expected_ns[point.candidate][point.length] * correction(point.candidate);
  }
  [[nodiscard]] bool is_legal(Point point) const { return expectations_.legal[point.candidate][point.length]; }
  [[nodiscard]] const Expectations& expectations() const noexcept { return expectations_; }
  /// Equal for candidates of which as much is expected, to the bit: the model cannot tell them apart.
  [[nodiscard]] double kind(std::size_t candidate) const { return lasting_[candidate].kind; }
  /// Whether they differ in one parameter alone, by however many steps.
  [[nodiscard]] bool are_neighbours(std::size_t a, std::size_t b) const {
    const auto& x = expectations_.position[a];
    const auto& y = expectations_.position[b];
    if (x.front() != y.front()) return false;
    std::size_t different = 0;
    for (std::size_t i = 1; i < x.size(); ++i) different += x[i] != y[i] ? 1 : 0;
    return different == 1;
  }

 private:
  struct Lasting {
    double kind = 0;
    double residual_sum = 0;
    int residuals = 0;
    mutable double correction = 1;
    mutable std::int64_t as_of = 0;  // news_
  };
  [[nodiscard]] double correction(std::size_t candidate) const {
    const Lasting& of = lasting_[candidate];
    if (of.as_of == news_) return of.correction;
    double weights = 0, sum = 0;
    for (const std::size_t each : known_) {
      const double weight = std::exp(-distance(candidate, each));
      weights += weight;
      sum += weight * lasting_[each].residual_sum / lasting_[each].residuals;
    }
    of.correction = weights > 0 ? std::exp(sum / weights) : 1.0;
    of.as_of = news_;
    return of.correction;
  }
  [[nodiscard]] double distance(std::size_t a, std::size_t b) const {
    const auto& x = expectations_.position[a];
    const auto& y = expectations_.position[b];
    constexpr double another_implementation = 8;
    if (x.front() != y.front()) return another_implementation;
    double steps = 0;
    for (std::size_t i = 1; i < x.size(); ++i) steps += std::min<double>(2, std::abs(static_cast<double>(x[i] - y[i])));
    return steps;
  }

  Expectations expectations_;
  std::vector<Lasting> lasting_;
  std::vector<std::size_t> known_;  // candidates with residuals
  std::int64_t news_ = 0;
};

class Racing final : public Search {
 public:
  Racing(Expectations expectations, const RacingLimits& limits)
      : scores_(expectations.candidates(), expectations.lengths()),
        forecast_(std::move(expectations)),
        limits_(limits),
        random_(limits.seed),
        seen_(scores_.lengths()) {}

  std::optional<Ask> next() override {
    reference_samples_.clear();
    if (last_) return last_->next();
    if (!std::exchange(is_settling_, true))
      if (Ask more = beside_reference(hopeful(newcomers_), more_rounds); !more.points.empty()) return more;
    settle();
    is_settling_ = false;
    newcomers_ = has_ended() ? std::vector<std::size_t>() : std::exchange(queued_, {});
    if (newcomers_.empty()) newcomers_ = nominate();
    if (scores_.lengths() > 1) queued_ = nominate();
    if (!newcomers_.empty()) return beside_reference(worthwhile(newcomers_), 1);
    references_.clear();
    last_.emplace(scores_, forecast_.expectations().of_libraries);
    return last_->next();
  }

  void report(Point point, std::span<const double> samples_ns) override {
    if (last_) return scores_.add(point, samples_ns);
    if (const auto reference = references_.find(point.length);
        reference != references_.end() && reference->second == point.candidate) {
      reference_samples_[point.length].assign(samples_ns.begin(), samples_ns.end());
      return;
    }
    scores_.add(point, at_reference(point.length, samples_ns));
    if (!samples_ns.empty()) forecast_.learn(point, scores_.cost(point).median_ns);
  }
  void hurry() override { hurried_ = true; }
  void reject(std::size_t candidate) override { scores_.reject(candidate); }
  [[nodiscard]] bool contends(std::size_t candidate) const override {
    return scores_.contends(candidate) || (!last_ && may_serve(candidate));
  }
  [[nodiscard]] const Cost& cost(Point point) const override { return scores_.cost(point); }
  [[nodiscard]] std::vector<Comparison> comparisons() const override {
    return last_ ? last_->comparisons() : std::vector<Comparison>(scores_.lengths());
  }
  [[nodiscard]] std::vector<std::size_t> upcoming() const override {
    if (has_ended()) return {};
    if (rounds_ == 0) return nominate_first();
    if (scores_.lengths() > 1) return queued_;
    if (has_tried_all_it_may()) return {};
    std::vector<std::size_t> likely;
    const std::vector<std::size_t> ranked = untried_by_promise();
    const auto add = [&](std::size_t candidate) {
      if (likely.size() < compiles_ahead && std::ranges::find(likely, candidate) == likely.end())
        likely.push_back(candidate);
    };
    // As nominate_next goes on: beside each that tells something new, a neighbour of the best.
    auto near = ranked.begin();
    const auto leader = best_own(0);
    for (const std::size_t candidate : news_of(ranked)) {
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
  /// Where newcomers take their first samples: wherever they are legal and may come near the best.
  [[nodiscard]] std::vector<Point> worthwhile(std::span<const std::size_t> candidates) const {
    std::vector<Point> points;
    for (std::size_t length = 0; length < scores_.lengths(); ++length) {
      const double limit = worth_a_sample * scores_.best_ns(length);
      for (const std::size_t candidate : candidates)
        if (const Point point{candidate, length}; forecast_.is_legal(point) && forecast_.expected_ns(point) <= limit)
          points.push_back(point);
    }
    // Each is seen somewhere: where it promises most.
    for (const std::size_t candidate : candidates)
      if (std::ranges::find(points, candidate, &Point::candidate) == points.end())
        if (const auto best = most_promising(candidate)) points.push_back(*best);
    return points;
  }
  [[nodiscard]] std::optional<Point> most_promising(std::size_t candidate) const {
    std::optional<Point> best;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t length = 0; length < scores_.lengths(); ++length) {
      const Point point{candidate, length};
      if (!forecast_.is_legal(point)) continue;
      const double behind = forecast_.expected_ns(point) / reference_ns(length);
      if (best && behind >= least) continue;
      best = point;
      least = behind;
    }
    return best;
  }
  /// What a candidate is held against at a length: the best that was measured, or expected where nothing was.
  [[nodiscard]] double reference_ns(std::size_t length) const {
    if (const double best = scores_.best_ns(length); std::isfinite(best)) return best;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (forecast_.is_legal({i, length})) least = std::min(least, forecast_.expectations().expected_ns[i][length]);
    return least;
  }

  /// Lets the leader of each length run first in each round, so that newcomers are compared with it as the clock is now: a device that
  /// warms up under long kernels would leave the lead to those that came early.
  Ask beside_reference(const std::vector<Point>& points, std::int64_t rounds) {
    Ask ask{{}, rounds};
    references_.clear();
    for (const Point& each : points) {
      if (references_.contains(each.length)) continue;
      const auto leader = scores_.leader(each.length);
      if (!leader || std::ranges::find(points, Point{*leader, each.length}) != points.end()) continue;
      references_.emplace(each.length, *leader);
      reference_scores_[each.length] = scores_.best_ns(each.length);
      ask.points.push_back({*leader, each.length});
    }
    ask.points.insert(ask.points.end(), points.begin(), points.end());
    std::ranges::stable_sort(ask.points, {}, &Point::length);  // what is compared runs side by side
    return ask;
  }
  /// Samples as they would have been when the reference candidate took what the scores say.
  [[nodiscard]] std::vector<double> at_reference(std::size_t length, std::span<const double> samples_ns) const {
    std::vector<double> result(samples_ns.begin(), samples_ns.end());
    const auto pace = reference_samples_.find(length);
    if (pace == reference_samples_.end()) return result;
    for (std::size_t i = 0; i < std::min(result.size(), pace->second.size()); ++i)
      result[i] *=
          std::clamp(reference_scores_.at(length) / std::max(pace->second[i], 1.0), 1 / most_drift, most_drift);
    return result;
  }

  /// Of the newcomers, where one sample leaves them a chance.
  [[nodiscard]] std::vector<Point> hopeful(const std::vector<std::size_t>& newcomers) const {
    std::vector<Point> result;
    for (std::size_t length = 0; length < scores_.lengths(); ++length)
      for (std::size_t candidate : newcomers)
        if (const Point point{candidate, length};
            scores_.contends(point) && scores_.cost(point).median_ns <= out_of_reach * scores_.best_ns(length))
          result.push_back(point);
    return result;
  }

  struct Best {
    double any_ns = std::numeric_limits<double>::infinity(), own_ns = any_ns;
  };
  /// After a round of newcomers: who is out, and whether it brought anything.
  void settle() {
    double gain = 0;
    const auto improve = [&](double& before, double now) {
      if (!std::isfinite(now)) return;
      if (std::isfinite(before) && now < improvement * before) gain += std::log(before / now);
      if (!std::isfinite(before)) gain = std::numeric_limits<double>::infinity();
      before = std::min(before, now);
    };
    for (std::size_t length = 0; length < scores_.lengths(); ++length) {
      improve(seen_[length].any_ns, scores_.best_ns(length));
      const auto own = best_own(length);
      if (own) improve(seen_[length].own_ns, scores_.cost({*own, length}).median_ns);
    }
    // Of many lengths one alone improves by chance more often.
    const auto lengths = static_cast<double>(scores_.lengths());
    const bool is_news = gain > (lengths > 1 ? std::max(improvement_of_few, lengths * improvement_of_many) : 0);
    idle_ = is_news ? 0 : idle_ + static_cast<std::int64_t>(newcomers_.size());
    scores_.eliminate();
  }
  /// Where it is about as fast as the best, or as the best without a library, it takes part in the last comparison.
  [[nodiscard]] bool may_serve(std::size_t candidate) const {
    for (std::size_t length = 0; length < scores_.lengths(); ++length) {
      const Cost& cost = scores_.cost({candidate, length});
      if (cost.failed()) continue;
      const auto own = best_own(length);
      const double best = own ? scores_.cost({*own, length}).median_ns : scores_.best_ns(length);
      if (cost.median_ns <= about_as_fast * best) return true;
    }
    return false;
  }
  /// Of those that need no library: where one leads, the fastest of the others serves without it.
  [[nodiscard]] std::optional<std::size_t> best_own(std::size_t length) const {
    const std::vector<std::size_t>& libraries = forecast_.expectations().of_libraries;
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const Cost& cost = scores_.cost({i, length});
      if (!cost.failed() && std::ranges::find(libraries, i) == libraries.end() &&
          (!best || cost.median_ns < scores_.cost({*best, length}).median_ns))
        best = i;
    }
    return best;
  }

  [[nodiscard]] std::vector<std::size_t> untried_by_promise() const {
    std::vector<double> reference;
    for (std::size_t length = 0; length < scores_.lengths(); ++length) reference.push_back(reference_ns(length));
    std::vector<std::pair<double, std::size_t>> ranked;
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      if (!is_open(i)) continue;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t length = 0; length < reference.size(); ++length)
        if (forecast_.is_legal({i, length}))
          least = std::min(least, forecast_.expected_ns({i, length}) / reference[length]);
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
      if (first.size() <= most && std::find(first.begin(), first.end(), candidate) == first.end())
        first.push_back(candidate);
    };
    const auto is_near = [&](std::size_t candidate) {
      return std::any_of(first.begin() + 1, first.end(),
                         [&](std::size_t other) { return forecast_.are_neighbours(candidate, other); });
    };
    for (std::size_t favourite : forecast_.expectations().favourites)
      if (std::find(first.begin(), first.end(), favourite) == first.end()) first.push_back(favourite);
    // What the model favours at each length.
    if (scores_.lengths() > 1) most = first.size() + most_newcomers;
    for (std::size_t length = scores_.lengths(); scores_.lengths() > 1 && length-- > 0;) {
      std::optional<std::size_t> best;
      for (std::size_t i = 0; i < scores_.size(); ++i)
        if (forecast_.is_legal({i, length}) && is_open(i) &&
            (!best || forecast_.expected_ns({i, length}) < forecast_.expected_ns({*best, length})))
          best = i;
      if (best) add(*best);
    }
    most = std::max(first_newcomers, first.size() - 1);
    // One of each kind, for neighbours are expected to take about the same; and if there are too few kinds, any.
    const std::vector<std::size_t> ranked = untried_by_promise();
    for (std::size_t candidate : ranked)
      if (!is_near(candidate)) add(candidate);
    for (std::size_t candidate : ranked) add(candidate);
    return first;
  }

  [[nodiscard]] bool has_ended() const {
    return last_ || hurried_ || (idle_ >= limits_.patience && scores_.leader(scores_.lengths() - 1));
  }
  [[nodiscard]] bool has_tried_all_it_may() const { return limits_.trials > 0 && tried_ >= limits_.trials; }
  /// Not tried, and not about to be.
  [[nodiscard]] bool is_open(std::size_t candidate) const {
    return scores_.is_untried(candidate) && std::ranges::find(newcomers_, candidate) == newcomers_.end() &&
           std::ranges::find(queued_, candidate) == queued_.end();
  }

  std::vector<std::size_t> nominate() {
    if (has_ended() || has_tried_all_it_may()) return {};
    std::vector<std::size_t> round = rounds_++ == 0 ? nominate_first() : nominate_next();
    if (limits_.trials > 0 && tried_ + static_cast<std::int64_t>(round.size()) > limits_.trials)
      round.resize(static_cast<std::size_t>(limits_.trials - tried_));
    tried_ += static_cast<std::int64_t>(round.size());
    return round;
  }

  /// The most promising of those that tell something new; and beside it the best one's most promising neighbour, or, now and then, any
  /// of the better half. Of several lengths, some such pairs, as many
  /// as compile at once beside those of the round before, which is still to be timed.
  std::vector<std::size_t> nominate_next() {
    std::vector<std::size_t> ranked = untried_by_promise(), chosen;
    const std::vector<std::size_t> news = news_of(ranked);
    const std::size_t pairs = scores_.lengths() > 1 ? most_pairs : 1;
    std::set<std::size_t> compiled = kernels_seen();
    std::size_t compiles = 0;
    const auto take = [&](std::vector<std::size_t>::iterator which) {
      if (compiled.insert(forecast_.expectations().kernel[*which]).second) ++compiles;
      chosen.push_back(*which);
      ranked.erase(which);
    };
    for (std::size_t pair = 0; pair < pairs && compiles < compiles_a_round() && !ranked.empty(); ++pair) {
      const auto tells =
          std::ranges::find_if(news, [&](std::size_t each) { return std::ranges::find(ranked, each) != ranked.end(); });
      take(tells != news.end() ? std::ranges::find(ranked, *tells) : ranked.begin());
      if (ranked.empty()) break;
      const bool draws = pair == 0 && rounds_ % rounds_a_draw == 0 && ranked.size() > 1;
      take(draws ? ranked.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                        0, static_cast<std::ptrdiff_t>(ranked.size() / 2))(random_)
                 : neighbour_of_best(ranked, static_cast<std::size_t>(rounds_) * pairs + pair));
    }
    // A library's own order tells its algorithms apart, and none takes a compile: where one comes near the best, its others follow.
    if (const auto& libraries = forecast_.expectations().of_libraries; is_near_best(libraries)) {
      std::size_t more = library_newcomers;
      for (const std::size_t each : libraries)
        if (more > 0 && is_open(each) && std::ranges::find(chosen, each) == chosen.end()) {
          chosen.push_back(each);
          --more;
        }
    }
    return chosen;
  }
  /// Of several lengths two rounds are under way at a time.
  [[nodiscard]] std::size_t compiles_a_round() const { return std::max<std::size_t>(limits_.compiles_at_once / 2, 2); }
  [[nodiscard]] std::set<std::size_t> kernels_seen() const {
    std::set<std::size_t> seen;
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (!is_open(i)) seen.insert(forecast_.expectations().kernel[i]);
    return seen;
  }
  [[nodiscard]] bool is_near_best(std::span<const std::size_t> candidates) const {
    for (std::size_t length = 0; length < scores_.lengths(); ++length)
      for (const std::size_t each : candidates)
        if (scores_.cost({each, length}).median_ns <= near_best * scores_.best_ns(length)) return true;
    return false;
  }
  /// The first of each kind of which none was tried. Such configs as the model cannot tell apart, as it cannot in what order tiles are
  /// walked, are many, and a search that takes them in turn ends before it has seen another tile.
  [[nodiscard]] std::vector<std::size_t> news_of(std::span<const std::size_t> ranked) const {
    std::set<double> seen;
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (!is_open(i) && !scores_.is_rejected(i)) seen.insert(forecast_.kind(i));
    std::vector<std::size_t> news;
    for (const std::size_t candidate : ranked)
      if (seen.insert(forecast_.kind(candidate)).second) news.push_back(candidate);
    return news;
  }

  /// Of the best at each length in turn, from the bucket's upper edge down; else the most promising.
  [[nodiscard]] std::vector<std::size_t>::iterator neighbour_of_best(std::vector<std::size_t>& ranked,
                                                                     std::size_t turn) const {
    // A library's own order tells more of its configs.
    const auto of = best_own(scores_.lengths() - 1 - turn % scores_.lengths());
    const auto near =
        std::ranges::find_if(ranked, [&](std::size_t each) { return of && forecast_.are_neighbours(each, *of); });
    return near != ranked.end() ? near : ranked.begin();
  }

  Scoreboard scores_;
  Forecast forecast_;
  RacingLimits limits_;
  std::mt19937_64 random_;
  std::vector<std::size_t> newcomers_;              // of this round
  std::vector<std::size_t> queued_;                 // of the next one: of several lengths, chosen a round ahead
  std::map<std::size_t, std::size_t> references_;   // by length: the leader when the round began
  std::map<std::size_t, double> reference_scores_;  // its median then
  std::map<std::size_t, std::vector<double>> reference_samples_;  // its samples of this ask
  bool is_settling_ = true;                                       // the newcomers have all their samples
  bool hurried_ = false;
  std::int64_t rounds_ = 0, tried_ = 0, idle_ = 0;
  std::vector<Best> seen_;  // by length
  std::optional<LastComparison> last_;
};

}  // namespace

std::unique_ptr<Search> racing(Expectations expectations, const RacingLimits& limits) {
  return std::make_unique<Racing>(std::move(expectations), limits);
}

}  // namespace kiln::tune
