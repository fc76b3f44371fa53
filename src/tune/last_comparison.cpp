#include "tune/last_comparison.hpp"

#include <algorithm>
#include <utility>

namespace kiln::tune {
namespace {

constexpr std::size_t most_a_length = 8, least_a_length = 3;
constexpr std::size_t most_points = 64;  // at all lengths together, without those that are about as fast
constexpr double about_as_fast = 1.04;   // median over the best at a length
constexpr double too_slow = 1.03;        // lower bound of the ratio to the leader: above, a candidate is eliminated
constexpr std::size_t least_own = 2;     // candidates that need no library
constexpr std::int64_t burst = 7;        // rounds between two eliminations; an interval of 95 % needs six samples
constexpr std::int64_t most_bursts = 5;
constexpr double shared_budget_ns = 300e6;  // for all runs; long kernels get fewer rounds
constexpr double long_round_ns = 60e6;      // of a round: above, one burst is taken, of fewer candidates

}  // namespace

LastComparison::LastComparison(Scoreboard& scores, std::span<const std::size_t> of_libraries)
    : scores_(scores), of_libraries_(of_libraries.begin(), of_libraries.end()) {
  scores.eliminate();
  take_in();
  double round_ns = 0;
  for (std::size_t length = 0; length < scores.lengths(); ++length)
    for (std::size_t i = 0; i < scores.size(); ++i)
      if (const Point point{i, length}; scores.contends(point) && !has(point)) scores.eliminate(point);
  for (Entry& entry : entries_) {
    entry.before_ns = scores.cost(entry.point).median_ns;
    round_ns += entry.before_ns;
    scores.forget_samples(entry.point);
  }
  const std::int64_t least = round_ns > long_round_ns ? burst : burst + 2;
  most_rounds_ =
      std::clamp(static_cast<std::int64_t>(shared_budget_ns / std::max(round_ns, 1.0)), least, most_bursts * burst);
}

bool LastComparison::has(Point point) const {
  return std::ranges::find(entries_, point, &Entry::point) != entries_.end();
}

void LastComparison::add(Point point) {
  if (!has(point)) entries_.push_back({point});
}

bool LastComparison::is_library(std::size_t candidate) const {
  return std::ranges::find(of_libraries_, candidate) != of_libraries_.end();
}

void LastComparison::take_in() {
  const std::size_t lengths = scores_.lengths();
  std::size_t most = std::clamp(most_points / std::max<std::size_t>(lengths, 1), least_a_length, most_a_length);
  if (const double each_ns = scores_.best_ns(lengths - 1) * static_cast<double>(lengths);
      each_ns * static_cast<double>(most) > long_round_ns)
    most = std::max(least_a_length, static_cast<std::size_t>(long_round_ns / each_ns));
  std::vector<std::size_t> taken;
  for (std::size_t length = 0; length < lengths; ++length) {
    std::vector<std::size_t> ranked;
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (!scores_.cost({i, length}).failed() && !scores_.is_rejected(i)) ranked.push_back(i);
    std::ranges::stable_sort(ranked, {}, [&](std::size_t i) { return scores_.cost({i, length}).median_ns; });
    std::size_t all = 0, own = 0;
    for (const std::size_t i : ranked) {
      const bool wins = scores_.contends({i, length}) && all < most;
      // Candidates that may stand in for a library are compared, however slow.
      const bool stands_in = !of_libraries_.empty() && !is_library(i) && own < least_own;
      const bool is_baseline = i == 0 && length + 1 == lengths;
      if (!wins && !stands_in && !is_baseline) continue;
      add({i, length});
      taken.push_back(i);
      ++all;
      if (!is_library(i)) ++own;
    }
  }
  std::ranges::sort(taken);
  taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
  for (std::size_t length = 0; length < lengths; ++length) {
    const double best = scores_.best_ns(length);
    for (const std::size_t i : taken) {
      const Cost& cost = scores_.cost({i, length});
      if (!cost.failed() && cost.median_ns <= about_as_fast * best) add({i, length});
    }
  }
  std::ranges::stable_sort(entries_, {},
                           [](const Entry& each) { return std::pair(each.point.length, each.point.candidate); });
}

std::optional<std::size_t> LastComparison::leader(std::size_t length, bool with_libraries) const {
  std::optional<std::size_t> best;
  for (const Entry& each : entries_)
    if (each.point.length == length && scores_.contends(each.point) && !scores_.samples(each.point).empty() &&
        (with_libraries || !is_library(each.point.candidate)) &&
        (!best || scores_.cost(each.point).median_ns < scores_.cost({*best, length}).median_ns))
      best = each.point.candidate;
  return best;
}

void LastComparison::eliminate() {
  for (std::size_t length = 0; length < scores_.lengths(); ++length) {
    const auto first = leader(length), first_own = leader(length, false);
    for (const Entry& each : entries_) {
      if (each.point.length != length || !scores_.contends(each.point)) continue;
      const auto against = is_library(each.point.candidate) ? first : first_own;
      if (against && each.point.candidate != *against &&
          ratio(scores_.samples(each.point), scores_.samples({*against, length})).low_ns > too_slow)
        scores_.eliminate(each.point);
    }
  }
}

std::optional<Ask> LastComparison::next() {
  if (rounds_ > 0) eliminate();
  Ask ask;
  bool is_contested = false;
  for (const Entry& each : entries_) {
    // The first round samples all entries, also those that earlier rounds eliminated.
    if (rounds_ == 0 ? scores_.is_rejected(each.point.candidate) : !scores_.contends(each.point)) continue;
    is_contested = is_contested || (!ask.points.empty() && ask.points.back().length == each.point.length);
    ask.points.push_back(each.point);
  }
  // The record keeps the winner's interval, so that even an uncontested winner is timed for two bursts.
  const std::int64_t wanted = is_contested ? most_rounds_ : std::min(most_rounds_, 2 * burst);
  ask.rounds = std::min(burst, wanted - rounds_);
  if (ask.points.empty() || ask.rounds <= 0) {
    if (!std::exchange(over_, true)) rescale_others();
    return std::nullopt;
  }
  rounds_ += ask.rounds;
  return ask;
}

void LastComparison::rescale_others() {
  std::vector<double> slower;
  for (const Entry& each : entries_)
    if (scores_.contends(each.point) && !scores_.samples(each.point).empty() && each.before_ns > 0)
      slower.push_back(scores_.cost(each.point).median_ns / each.before_ns);
  if (slower.empty()) return;
  const double factor = summarise(slower).median_ns;
  for (std::size_t length = 0; length < scores_.lengths(); ++length) {
    const auto first = leader(length);
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const Point point{i, length};
      if (!has(point)) {
        if (!scores_.cost(point).failed()) scores_.rescale(point, factor);
      } else if (first && !scores_.contends(point) && !scores_.samples(point).empty()) {
        const Point leads{*first, length};
        const double behind = ratio(scores_.samples(point), scores_.samples(leads)).median_ns;
        scores_.rescale(point, behind * scores_.cost(leads).median_ns / std::max(scores_.cost(point).median_ns, 1.0));
      }
    }
  }
}

std::vector<Comparison> LastComparison::comparisons() const {
  std::vector<Comparison> all(scores_.lengths());
  for (const bool beaten_too : {false, true})
    for (std::size_t length = 0; length < all.size(); ++length) {
      if (beaten_too && !all[length].empty()) continue;
      for (const Entry& each : entries_)
        if (each.point.length == length && !scores_.is_rejected(each.point.candidate) &&
            (beaten_too || scores_.contends(each.point)) && !scores_.samples(each.point).empty())
          all[length].push_back({each.point.candidate, scores_.samples(each.point)});
    }
  return all;
}

}  // namespace kiln::tune
