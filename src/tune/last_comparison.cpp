#include "tune/last_comparison.hpp"

#include <algorithm>
#include <utility>

#include "tune/tolerances.hpp"

namespace kiln::tune {

LastComparison::LastComparison(Scoreboard& scores, std::span<const std::size_t> of_libraries)
    : scores_(scores), of_libraries_(of_libraries.begin(), of_libraries.end()) {
  scores.eliminate();
  take_in();
  double round_ns = 0;
  for (std::size_t size = 0; size < scores.sizes(); ++size)
    for (std::size_t i = 0; i < scores.candidates(); ++i)
      if (const Point point{i, size}; scores.contends(point) && !has(point)) scores.eliminate(point);
  for (Participant& each : participants_) {
    each.before_ns = scores.cost(each.point).median_ns;
    round_ns += each.before_ns;
    scores.forget_samples(each.point);
  }
  const std::int64_t least = round_ns > long_round_ns ? burst : burst + 2;
  most_rounds_ =
      std::clamp(static_cast<std::int64_t>(shared_budget_ns / std::max(round_ns, 1.0)), least, most_bursts * burst);
}

bool LastComparison::has(Point point) const {
  return std::ranges::find(participants_, point, &Participant::point) != participants_.end();
}

void LastComparison::add(Point point) {
  if (!has(point)) participants_.push_back({point});
}

void LastComparison::take_in() {
  const std::size_t sizes = scores_.sizes();
  std::size_t most = std::clamp(most_points / std::max<std::size_t>(sizes, 1), least_a_size, most_a_size);
  if (const double each_ns = scores_.best_ns(sizes - 1) * static_cast<double>(sizes);
      each_ns * static_cast<double>(most) > long_round_ns)
    most = std::max(least_a_size, static_cast<std::size_t>(long_round_ns / each_ns));
  std::vector<std::size_t> taken;
  for (std::size_t size = 0; size < sizes; ++size) {
    std::vector<std::size_t> ranked;
    for (std::size_t i = 0; i < scores_.candidates(); ++i)
      if (!scores_.cost({i, size}).failed() && !scores_.is_rejected(i)) ranked.push_back(i);
    std::ranges::stable_sort(ranked, {}, [&](std::size_t i) { return scores_.cost({i, size}).median_ns; });
    std::size_t all = 0, own = 0;
    for (const std::size_t i : ranked) {
      const bool wins = scores_.contends({i, size}) && all < most;
      // Candidates that may stand in for a library are compared, however slow.
      const bool stands_in = !of_libraries_.empty() && !contains(of_libraries_, i) && own < least_own;
      const bool is_baseline = i == 0 && size + 1 == sizes;
      if (!wins && !stands_in && !is_baseline) continue;
      add({i, size});
      taken.push_back(i);
      ++all;
      if (!contains(of_libraries_, i)) ++own;
    }
  }
  std::ranges::sort(taken);
  taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
  for (std::size_t size = 0; size < sizes; ++size) {
    const double best = scores_.best_ns(size);
    for (const std::size_t i : taken) {
      const Cost& cost = scores_.cost({i, size});
      if (!cost.failed() && cost.median_ns <= about_as_fast * best) add({i, size});
    }
  }
  std::ranges::stable_sort(participants_, {},
                           [](const Participant& each) { return std::pair(each.point.size, each.point.candidate); });
}

std::optional<std::size_t> LastComparison::leader(std::size_t size, bool with_libraries) const {
  std::optional<std::size_t> best;
  for (const Participant& each : participants_)
    if (each.point.size == size && scores_.contends(each.point) && !scores_.samples(each.point).empty() &&
        (with_libraries || !contains(of_libraries_, each.point.candidate)) &&
        (!best || scores_.cost(each.point).median_ns < scores_.cost({*best, size}).median_ns))
      best = each.point.candidate;
  return best;
}

void LastComparison::eliminate() {
  for (std::size_t size = 0; size < scores_.sizes(); ++size) {
    const auto first = leader(size), first_own = leader(size, false);
    for (const Participant& each : participants_) {
      if (each.point.size != size || !scores_.contends(each.point)) continue;
      const auto against = contains(of_libraries_, each.point.candidate) ? first : first_own;
      if (against && each.point.candidate != *against &&
          ratio(scores_.samples(each.point), scores_.samples({*against, size})).low_ns > too_slow)
        scores_.eliminate(each.point);
    }
  }
}

std::optional<Ask> LastComparison::next() {
  if (rounds_ > 0) eliminate();
  Ask ask;
  bool is_contested = false;
  for (const Participant& each : participants_) {
    // The first round samples all participants, also those that earlier rounds eliminated.
    if (rounds_ == 0 ? scores_.is_rejected(each.point.candidate) : !scores_.contends(each.point)) continue;
    is_contested = is_contested || (!ask.points.empty() && ask.points.back().size == each.point.size);
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
  for (const Participant& each : participants_)
    if (scores_.contends(each.point) && !scores_.samples(each.point).empty() && each.before_ns > 0)
      slower.push_back(scores_.cost(each.point).median_ns / each.before_ns);
  if (slower.empty()) return;
  const double factor = summarise(slower).median_ns;
  for (std::size_t size = 0; size < scores_.sizes(); ++size) {
    const auto first = leader(size);
    for (std::size_t i = 0; i < scores_.candidates(); ++i) {
      const Point point{i, size};
      if (!has(point)) {
        if (!scores_.cost(point).failed()) scores_.rescale(point, factor);
      } else if (first && !scores_.contends(point) && !scores_.samples(point).empty()) {
        const Point leads{*first, size};
        const double behind = ratio(scores_.samples(point), scores_.samples(leads)).median_ns;
        scores_.rescale(point, behind * scores_.cost(leads).median_ns / std::max(scores_.cost(point).median_ns, 1.0));
      }
    }
  }
}

std::vector<Comparison> LastComparison::comparisons() const {
  std::vector<Comparison> all(scores_.sizes());
  for (const bool beaten_too : {false, true})
    for (std::size_t size = 0; size < all.size(); ++size) {
      if (beaten_too && !all[size].empty()) continue;
      for (const Participant& each : participants_)
        if (each.point.size == size && !scores_.is_rejected(each.point.candidate) &&
            (beaten_too || scores_.contends(each.point)) && !scores_.samples(each.point).empty())
          all[size].push_back({each.point.candidate, scores_.samples(each.point)});
    }
  return all;
}

}  // namespace kiln::tune
