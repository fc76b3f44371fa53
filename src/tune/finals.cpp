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

void Finals::report_inside(std::size_t candidate, std::span<const double> samples_ns) {
  std::vector<double>& samples = inside_[candidate];
  samples.insert(samples.end(), samples_ns.begin(), samples_ns.end());
}

std::span<const double> Finals::inside_of(std::size_t candidate) const {
  const auto own = inside_.find(candidate), baseline = inside_.find(0);
  if (own == inside_.end() || scores_.is_rejected(candidate)) return {};
  if (!own->second.empty() || baseline == inside_.end() || scores_.is_rejected(0)) return own->second;
  return baseline->second;
}

std::vector<double> Finals::figures_of(std::size_t candidate) const {
  const std::vector<double>& edge = scores_.samples(candidate);
  const auto inside = inside_of(candidate);
  return inside.empty() ? edge : geometric_mean(edge, inside);
}

std::vector<std::size_t> Finals::comparable(std::vector<std::size_t> candidates) const {
  const auto is_of_both = [&](std::size_t each) { return !inside_of(each).empty(); };
  if (std::ranges::any_of(candidates, is_of_both))
    std::erase_if(candidates, [&](std::size_t each) { return !is_of_both(each); });
  return candidates;
}

std::vector<std::size_t> Finals::contenders() const {
  std::vector<std::size_t> left = finalists_;
  std::erase_if(left, [&](std::size_t each) { return !scores_.contends(each); });
  return left;
}

bool Finals::baseline_stands_in() const {
  return std::ranges::any_of(contenders(), [&](std::size_t each) {
    const auto own = inside_.find(each);
    return own != inside_.end() && own->second.empty() && !inside_of(each).empty();
  });
}

/// Who is slower than the leader beyond the noise is out; the baseline too, since then it has been beaten, unless its samples are needed.
void Finals::eliminate() {
  const std::vector<std::size_t> before = contenders(), left = comparable(before);
  if (left.empty()) return;
  for (std::size_t candidate : before)
    if (std::ranges::find(left, candidate) == left.end()) scores_.beat(candidate);
  std::vector<std::vector<double>> figures;
  for (std::size_t candidate : left) figures.push_back(figures_of(candidate));
  const auto leader =
      std::ranges::min_element(figures, {}, [](std::vector<double> each) { return summarise(each).median_ns; });
  for (std::size_t i = 0; i < left.size(); ++i)
    if (left[i] != 0 && ratio(figures[i], *leader).low_ns > 1) scores_.beat(left[i]);
  if (left.front() == 0 && ratio(figures.front(), *leader).low_ns > 1 && !baseline_stands_in()) scores_.beat(0);
}

double Finals::weighed_ns(std::size_t candidate) const {
  const auto leader = scores_.leader();
  if (!leader || inside_of(candidate).empty() || inside_of(*leader).empty()) return scores_.cost(candidate).median_ns;
  return ratio(figures_of(candidate), figures_of(*leader)).median_ns * scores_.cost(*leader).median_ns;
}

std::optional<Ask> Finals::next() {
  if (rounds_ > 0) eliminate();
  Ask ask{contenders(), 0, true};
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
  const std::vector<std::size_t> left = contenders();
  for (std::size_t candidate : comparable(left.empty() ? finalists_ : left)) {
    Finalist finalist{figures_of(candidate), burdens[candidate]};
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
