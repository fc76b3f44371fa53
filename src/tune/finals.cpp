#include "tune/finals.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kiln::tune {
namespace {

constexpr double reach = 1.02;  // an interval that begins within this of the leader's end may yet win
constexpr std::size_t most_finalists = 8;
constexpr std::int64_t burst = 7;  // rounds between two looks; six samples are the fewest with an interval of 95 %
constexpr std::int64_t most_bursts = 5;
constexpr double shared_budget_ns = 300e6;  // of all finalists' runs together; long kernels get fewer rounds

}  // namespace

void Scoreboard::add(std::size_t candidate, std::span<const double> samples_ns) {
  Entry& entry = entries_[candidate];
  entry.standing = Standing::contends;
  entry.samples.insert(entry.samples.end(), samples_ns.begin(), samples_ns.end());
  std::vector<double> sorted = entry.samples;
  entry.cost = summarise(sorted);
}

void Scoreboard::rescale(std::size_t candidate, double factor) {
  entries_[candidate].cost = times(entries_[candidate].cost, factor);
}

std::vector<std::size_t> Scoreboard::contenders() const {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (contends(i)) result.push_back(i);
  return result;
}

std::optional<std::size_t> Scoreboard::leader() const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (contends(i) && (!best || cost(i).median_ns < cost(*best).median_ns)) best = i;
  return best;
}

void Scoreboard::eliminate() {
  const auto first = leader();
  if (!first) return;
  const double limit = reach * cost(*first).high_ns;
  for (std::size_t i = 1; i < entries_.size(); ++i)
    if (contends(i) && cost(i).low_ns > limit) beat(i);
}

Finals::Finals(Scoreboard& scores) : scores_(scores) {
  scores.eliminate();
  std::vector<std::size_t> ranked = scores.contenders();
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](std::size_t a, std::size_t b) { return scores.cost(a).median_ns < scores.cost(b).median_ns; });
  for (std::size_t candidate : ranked) {
    if (candidate == 0 || finalists_.size() < most_finalists)
      finalists_.push_back(candidate);
    else
      scores_.beat(candidate);
  }
  std::sort(finalists_.begin(), finalists_.end());
  double round_ns = 0;
  for (std::size_t candidate : finalists_) round_ns += scores.cost(candidate).median_ns;
  most_rounds_ =
      std::clamp(static_cast<std::int64_t>(shared_budget_ns / std::max(round_ns, 1.0)), burst + 2, most_bursts * burst);
  for (std::size_t candidate : finalists_) {
    before_ns_.push_back(scores_.cost(candidate).median_ns);
    scores_.forget_samples(candidate);
  }
}

void Finals::level() {
  std::vector<double> slower;
  for (std::size_t i = 0; i < finalists_.size(); ++i)
    if (scores_.contends(finalists_[i]) && !scores_.samples(finalists_[i]).empty())
      slower.push_back(scores_.cost(finalists_[i]).median_ns / std::max(before_ns_[i], 1.0));
  if (slower.empty()) return;
  const double factor = summarise(slower).median_ns;
  const std::size_t leader = scores_.leader().value();
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    if (std::find(finalists_.begin(), finalists_.end(), i) == finalists_.end()) {
      scores_.rescale(i, factor);
    } else if (!scores_.contends(i) && !scores_.samples(i).empty()) {
      const double behind = ratio(scores_.samples(i), scores_.samples(leader)).median_ns;
      scores_.rescale(i, behind * scores_.cost(leader).median_ns / std::max(scores_.cost(i).median_ns, 1.0));
    }
  }
}

/// Who is slower than the leader beyond the noise is out; the baseline too, since then it has been beaten.
void Finals::eliminate() {
  const auto leader = scores_.leader();
  if (!leader) return;
  for (std::size_t candidate : finalists_)
    if (scores_.contends(candidate) && ratio(scores_.samples(candidate), scores_.samples(*leader)).low_ns > 1)
      scores_.beat(candidate);
}

std::optional<Ask> Finals::next() {
  if (rounds_ > 0) eliminate();
  Ask ask;
  for (std::size_t candidate : finalists_)
    if (scores_.contends(candidate)) ask.candidates.push_back(candidate);
  // The winner's own interval is what the record keeps, so even one that nobody contests is measured to the end of a second burst.
  const std::int64_t wanted = ask.candidates.size() > 1 ? most_rounds_ : std::min(most_rounds_, 2 * burst);
  ask.rounds = std::min(burst, wanted - rounds_);
  if (ask.candidates.empty() || ask.rounds <= 0) {
    if (!std::exchange(over_, true)) level();
    return std::nullopt;
  }
  rounds_ += ask.rounds;
  return ask;
}

std::optional<std::size_t> Finals::winner(std::span<const Burden> burdens) const {
  std::vector<Finalist> finalists(1);  // choose() wants the baseline first; without samples it is one that failed
  std::vector<std::size_t> indices{0};
  // Who was eliminated has samples of the first rounds only, which the clock may have favoured: they count where nobody else is left.
  const bool any_left = std::ranges::any_of(finalists_, [&](std::size_t each) { return scores_.contends(each); });
  for (std::size_t candidate : finalists_) {
    if (any_left && !scores_.contends(candidate)) continue;
    Finalist finalist{scores_.samples(candidate), burdens[candidate]};
    if (candidate == 0) {
      finalists.front() = std::move(finalist);
    } else {
      finalists.push_back(std::move(finalist));
      indices.push_back(candidate);
    }
  }
  const auto chosen = choose(finalists);
  return chosen ? std::optional(indices[*chosen]) : std::nullopt;
}

}  // namespace kiln::tune
