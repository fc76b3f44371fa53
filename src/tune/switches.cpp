#include "tune/switches.hpp"

#include <algorithm>
#include <limits>

#include "tune/tolerances.hpp"

namespace kiln::tune {
namespace {

constexpr std::size_t no_candidate = std::numeric_limits<std::size_t>::max();

}  // namespace

Switches::Switches(std::int64_t low, std::int64_t multiple, std::span<const std::int64_t> ends,
                   std::span<const Comparison> comparisons, std::span<const std::size_t> of_libraries)
    : multiple_(multiple), of_libraries_(of_libraries.begin(), of_libraries.end()) {
  std::int64_t from = low;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    Interval interval;
    interval.low = from;
    interval.end = ends[i];
    from = ends[i] + multiple;
    if (interval.end - interval.low < least_interval * multiple || comparisons[i].empty()) continue;
    if (i > 0) take_in(interval, comparisons[i - 1]);
    take_in(interval, comparisons[i]);
    interval.first = fastest(comparisons[i], true);
    interval.first_own = fastest(comparisons[i], false);
    interval.fails = interval.end;
    interval.size = interval.low;
    if (interval.candidates.size() > 1) intervals_.push_back(std::move(interval));
  }
}

bool Switches::is_library(std::size_t candidate) const {
  return std::ranges::find(of_libraries_, candidate) != of_libraries_.end();
}

std::size_t Switches::fastest(const Comparison& comparison, bool with_libraries) const {
  std::size_t best = no_candidate;
  double least = std::numeric_limits<double>::infinity();
  for (const Compared& each : comparison) {
    if (each.samples_ns.empty() || (!with_libraries && is_library(each.candidate))) continue;
    if (const double ns = median_ns(each); ns < least) {
      least = ns;
      best = each.candidate;
    }
  }
  return best;
}

void Switches::take_in(Interval& interval, const Comparison& comparison) const {
  for (const bool own : {false, true}) {
    std::vector<std::pair<double, std::size_t>> ranked;
    for (const Compared& each : comparison)
      if (!each.samples_ns.empty() && !(own && is_library(each.candidate)))
        ranked.emplace_back(median_ns(each), each.candidate);
    std::ranges::sort(ranked);
    const std::size_t most = own ? most_own_of_an_end : most_of_an_end;
    for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i)
      if (ranked[i].first <= in_the_running * ranked.front().first &&
          std::ranges::find(interval.candidates, ranked[i].second) == interval.candidates.end())
        interval.candidates.push_back(ranked[i].second);
  }
}

std::vector<Probe> Switches::next() {
  if (rounds_ > 0)
    for (Interval& each : intervals_)
      if (each.size > 0) settle(each);
  std::vector<Probe> probes;
  if (rounds_++ == switch_rounds) return probes;
  for (const Interval& each : intervals_)
    if (each.size > 0)
      for (const std::size_t candidate : each.candidates) probes.push_back({candidate, each.size});
  return probes;
}

void Switches::report(const Probe& probe, std::span<const double> samples_ns) {
  if (samples_ns.empty()) return;
  const auto of = std::ranges::find(intervals_, probe.size, &Interval::size);
  if (of != intervals_.end())
    of->now.push_back({probe.candidate, std::vector<double>(samples_ns.begin(), samples_ns.end())});
}

bool Switches::is_other_faster(const Interval& interval) const {
  for (const bool with_libraries : {true, false}) {
    const std::size_t serves = with_libraries ? interval.first : interval.first_own;
    const std::size_t best = fastest(interval.now, with_libraries);
    if (serves == no_candidate || best == no_candidate || best == serves) continue;
    const auto of = [&](std::size_t candidate) {
      return std::ranges::find(interval.now, candidate, &Compared::candidate);
    };
    if (of(serves) == interval.now.end()) return true;  // `serves` cannot be launched here
    if (ratio(of(serves)->samples_ns, of(best)->samples_ns).median_ns > worth_a_part) return true;
  }
  return false;
}

/// Halves the range between the sizes where another candidate is faster and where none is. Probes odd sizes where the axis has them.
void Switches::settle(Interval& interval) const {
  if (is_other_faster(interval)) {
    interval.holds = interval.size;
    interval.at_holds = std::move(interval.now);
  } else {
    interval.fails = interval.size;
  }
  interval.now.clear();
  const std::int64_t between = (interval.holds + interval.fails) / 2, last = interval.size;
  interval.size = multiple_ == 1 ? between | 1 : between / multiple_ * multiple_;
  if (interval.holds == 0 || interval.size <= interval.holds || interval.size >= interval.fails ||
      interval.size == last)
    interval.size = 0;
}

std::vector<std::pair<std::int64_t, Comparison>> Switches::found() const {
  std::vector<std::pair<std::int64_t, Comparison>> all;
  for (const Interval& each : intervals_)
    if (each.holds > each.low) all.emplace_back(each.holds, each.at_holds);
  return all;
}

}  // namespace kiln::tune
