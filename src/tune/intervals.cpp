#include "tune/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "answer/model.hpp"
#include "kiln/error.hpp"
#include "tune/tolerances.hpp"

namespace kiln::tune {

Fastest fastest_of(const Comparison& comparison, std::span<const std::size_t> of_libraries) {
  const auto winner = [&](std::span<const std::size_t> but) {
    std::optional<std::size_t> best;
    double least = std::numeric_limits<double>::infinity();
    for (const Compared& each : comparison) {
      if (each.samples_ns.empty() || contains(but, each.candidate)) continue;
      if (const double ns = median_ns(each); ns < least) {
        least = ns;
        best = each.candidate;
      }
    }
    return best;
  };
  return {winner({}), winner(of_libraries)};
}

bool parts_interval(const Comparison& at_size, const Fastest& at_end, std::span<const std::size_t> of_libraries) {
  const Fastest here = fastest_of(at_size, of_libraries);
  for (const auto& [serves, best] : {std::pair(at_end.any, here.any), std::pair(at_end.own, here.own)}) {
    if (!serves || !best || *serves == *best) continue;
    const auto of = [&](std::size_t candidate) { return std::ranges::find(at_size, candidate, &Compared::candidate); };
    if (of(*serves) == at_size.end() || of(*serves)->samples_ns.empty()) return true;  // it cannot be launched here
    if (ratio(of(*serves)->samples_ns, of(*best)->samples_ns).median_ns > worth_a_part) return true;
  }
  return false;
}

namespace {

class InnerSizes {
 public:
  explicit InnerSizes(const SearchedAxis& searched) : searched_(searched) {}

  [[nodiscard]] std::vector<Probe> choose(const InnerLimits& limits) const {
    const std::vector<std::int64_t> stairs_ends = by_model(limits.sizes);
    for (std::size_t in_all = 2 * limits.sizes; in_all > 0; --in_all) {
      const std::vector<std::int64_t> proposed = by_proposals(std::min(limits.sizes, in_all * 2 / 3));
      const std::size_t by_stairs = std::min(in_all - in_all * 2 / 3, stairs_ends.size());
      const auto stairs = std::span(stairs_ends).first(by_stairs);
      std::vector<Probe> probes = probes_at({stairs.begin(), stairs.end()}, {proposed.begin(), proposed.end()});
      if (probes.size() <= limits.probes) return probes;
    }
    return {};
  }

 private:
  /// Returns the index of the end that stands for a size.
  [[nodiscard]] std::size_t end_of(std::int64_t size) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(searched_.ends, size) - searched_.ends.begin());
  }
  [[nodiscard]] bool is_library(std::size_t candidate) const { return contains(searched_.of_libraries, candidate); }

  /// Returns infinity for a candidate that was timed at neither end of the size's interval. A library's time is taken
  /// as that at the end.
  [[nodiscard]] double expected(std::size_t candidate, std::int64_t size) const {
    const std::size_t end = end_of(size);
    for (const std::size_t at : {end, end - 1}) {
      if (at >= searched_.ends.size() || searched_.costs[candidate][at].failed()) continue;
      const double measured = searched_.costs[candidate][at].median_ns;
      if (is_library(candidate)) return measured;
      return measured * searched_.expected_ns(candidate, size) / searched_.expected_ns(candidate, searched_.ends[at]);
    }
    return std::numeric_limits<double>::infinity();
  }

  /// Returns where stairs of measured candidates end, the largest loss first.
  [[nodiscard]] std::vector<std::int64_t> by_model(std::size_t at_most) const {
    const std::vector<std::int64_t> evenly = searched_.sizes.evenly(sizes_scanned);
    std::set<std::int64_t> scanned(searched_.ends.begin(), searched_.ends.end());
    scanned.insert(evenly.begin(), evenly.end());
    const std::vector<std::int64_t> sizes(scanned.begin(), scanned.end());
    std::vector<std::vector<double>> ns;
    for (std::size_t candidate = 0; candidate < searched_.costs.size(); ++candidate) {
      std::vector<double> row;
      for (const std::int64_t size : sizes) row.push_back(expected(candidate, size));
      if (std::ranges::any_of(row, [](double each) { return std::isfinite(each); })) ns.push_back(std::move(row));
    }
    if (ns.empty()) return {};
    return answer::stairs(sizes, ns, {searched_.ends.begin(), searched_.ends.end()}, at_most);
  }

  /// Returns the last sizes of a library's proposals that are not the fastest at the interval's end.
  [[nodiscard]] std::vector<std::int64_t> by_proposals(std::size_t at_most) const {
    std::vector<std::int64_t> all;
    for (const FirstProposal& each : searched_.proposals) {
      const std::size_t end = end_of(each.last_size);
      if (end == searched_.ends.size() || searched_.ends[end] == each.last_size) continue;
      if (fastest_of(searched_.comparisons[end], {}).any != each.candidate) all.push_back(each.last_size);
    }
    return answer::some_of(all, at_most);
  }

  /// Leaves out sizes at which there is nothing to compare.
  [[nodiscard]] std::vector<Probe> probes_at(const std::set<std::int64_t>& stairs,
                                             const std::set<std::int64_t>& proposed) const {
    std::set<std::int64_t> sizes = stairs;
    sizes.insert(proposed.begin(), proposed.end());
    std::vector<Probe> probes;
    for (const std::int64_t size : sizes)
      if (const auto candidates = candidates_at(size, stairs.contains(size)); candidates.size() > 1)
        for (const std::size_t each : candidates) probes.push_back({each, size});
    return probes;
  }
  /// Returns what serves the size and the library's proposal; where a stair ends, also what may be faster.
  [[nodiscard]] std::vector<std::size_t> candidates_at(std::int64_t size, bool is_end_of_stair) const {
    std::vector<std::size_t> candidates;
    const auto add = [&](std::optional<std::size_t> candidate) {
      if (candidate && !contains(candidates, *candidate)) candidates.push_back(*candidate);
    };
    const auto add_fastest_at = [&](std::size_t end) {
      if (end >= searched_.ends.size()) return;
      const Fastest fastest = fastest_of(searched_.comparisons[end], searched_.of_libraries);
      add(fastest.any);
      add(fastest.own);
    };
    const std::size_t end = end_of(size);
    add_fastest_at(end);
    if (is_end_of_stair) {
      add_fastest_at(end - 1);
      add_fastest_expected(size, add);
    }
    const auto proposed = std::ranges::lower_bound(searched_.proposals, size, {}, &FirstProposal::last_size);
    if (proposed != searched_.proposals.end()) add(proposed->candidate);
    return candidates;
  }
  template <typename Add>
  void add_fastest_expected(std::int64_t size, const Add& add) const {
    std::vector<std::pair<double, std::size_t>> ranked;
    for (std::size_t i = 0; i < searched_.costs.size(); ++i)
      if (const double ns = expected(i, size); std::isfinite(ns) && !is_library(i)) ranked.emplace_back(ns, i);
    std::ranges::sort(ranked);
    for (std::size_t i = 0; i < std::min(most_expected, ranked.size()); ++i) add(ranked[i].second);
  }

  const SearchedAxis& searched_;
};

}  // namespace

std::vector<Probe> inner_probes(const SearchedAxis& searched, const InnerLimits& limits) {
  return InnerSizes(searched).choose(limits);
}

Halving::Halving(const SearchedAxis& searched)
    : multiple_(searched.sizes.multiple), of_libraries_(searched.of_libraries.begin(), searched.of_libraries.end()) {
  std::int64_t from = searched.sizes.low;
  for (std::size_t i = 0; i < searched.ends.size(); ++i) {
    HalvedInterval interval;
    interval.low = interval.size = from;
    interval.end = interval.fails = searched.ends[i];
    from = interval.end + multiple_;
    if (interval.end - interval.low < least_interval * multiple_ || searched.comparisons[i].empty()) continue;
    if (i > 0) take_in(interval, searched.comparisons[i - 1]);
    take_in(interval, searched.comparisons[i]);
    interval.at_end = fastest_of(searched.comparisons[i], of_libraries_);
    if (interval.candidates.size() > 1) intervals_.push_back(std::move(interval));
  }
}

void Halving::take_in(HalvedInterval& interval, const Comparison& comparison) const {
  for (const bool own : {false, true}) {
    std::vector<std::pair<double, std::size_t>> ranked;
    for (const Compared& each : comparison)
      if (!each.samples_ns.empty() && !(own && contains(of_libraries_, each.candidate)))
        ranked.emplace_back(median_ns(each), each.candidate);
    std::ranges::sort(ranked);
    const std::size_t most = own ? most_own_of_an_end : most_of_an_end;
    for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i)
      if (ranked[i].first <= in_the_running * ranked.front().first && !contains(interval.candidates, ranked[i].second))
        interval.candidates.push_back(ranked[i].second);
  }
}

std::vector<Probe> Halving::next() {
  if (rounds_ > 0)
    for (HalvedInterval& each : intervals_)
      if (each.size > 0) settle(each);
  std::vector<Probe> probes;
  if (rounds_++ == switch_rounds) return probes;
  for (const HalvedInterval& each : intervals_)
    if (each.size > 0)
      for (const std::size_t candidate : each.candidates) probes.push_back({candidate, each.size});
  return probes;
}

void Halving::report(const Probe& probe, std::span<const double> samples_ns) {
  if (samples_ns.empty()) return;
  const auto of = std::ranges::find(intervals_, probe.size, &HalvedInterval::size);
  if (of != intervals_.end())
    of->now.push_back({probe.candidate, std::vector<double>(samples_ns.begin(), samples_ns.end())});
}

/// Halves the range between the sizes where another candidate is faster and where none is. Probes sizes where tiles may
/// end.
void Halving::settle(HalvedInterval& interval) const {
  if (parts_interval(interval.now, interval.at_end, of_libraries_)) {
    interval.holds = interval.size;
    interval.at_holds = std::move(interval.now);
  } else {
    interval.fails = interval.size;
  }
  interval.now.clear();
  const std::int64_t step = std::lcm(multiple_, tile_step), between = (interval.holds + interval.fails) / 2;
  interval.size = between / step * step;
  if (interval.size <= interval.holds) interval.size += step;
  if (interval.holds == 0 || interval.size <= interval.holds || interval.size >= interval.fails) interval.size = 0;
}

PartingSizes Halving::found() const {
  PartingSizes all;
  for (const HalvedInterval& each : intervals_)
    if (each.holds > each.low) all.emplace_back(each.holds, each.at_holds);
  return all;
}

namespace {

/// Samples probes, and adds the sizes that part intervals to what was measured.
class Parting {
 public:
  Parting(const IntervalsRequest& tune, Measured& measured)
      : tune_(tune),
        request_(tune.request),
        measured_(measured),
        libraries_(tune.candidates.expectations.of_libraries),
        axis_(measured.sizes.axes.front()),
        longest_ns_(measured.costs[measured.comparisons.back().front().candidate].back().median_ns),
        rounds_(longest_ns_ > long_launch_ns ? few_probes : many_probes) {}

  void at_inner_sizes() {
    try {
      merge(compared_inside());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      for (const std::size_t candidate : held_) tune_.trials.drop(candidate);
    }
  }

  void by_halving() {
    Halving halving(searched());
    for (auto probes = halving.next(); !probes.empty(); probes = halving.next()) {
      std::erase_if(probes, [&](const Probe& probe) { return !tune_.trials.is_in(probe.candidate); });
      sample(probes,
             [&](const Probe& probe, const std::vector<double>& samples_ns) { halving.report(probe, samples_ns); });
    }
    merge(halving.found());
  }

 private:
  [[nodiscard]] const std::vector<std::int64_t>& ends() const { return measured_.sizes.ends.front(); }
  [[nodiscard]] Problem at_size(std::int64_t size) const {
    Problem at = request_.bucket.edge;
    at.axes[axis_] = size;
    return at;
  }
  [[nodiscard]] SearchedAxis searched() const {
    return {answer::sizes_of(*request_.bucket.op, request_.bucket.edge, axis_),
            ends(),
            measured_.comparisons,
            measured_.costs,
            libraries_,
            tune_.candidates.proposals,
            [this](std::size_t candidate, std::int64_t size) { return estimate_at(candidate, size); }};
  }
  [[nodiscard]] double estimate_at(std::size_t candidate, std::int64_t size) const {
    const Candidate& of = tune_.candidates.list[candidate];
    const Problem at = at_size(size);
    if (of.broken_constraint(request_.bucket, at)) return std::numeric_limits<double>::infinity();
    return answer::estimate(request_.bucket, of, at).ns;
  }

  PartingSizes compared_inside() {
    const double round_ns = static_cast<double>(rounds_) * std::max(longest_ns_, 1.0);
    std::vector<Probe> probes;
    for (const Probe& each :
         inner_probes(searched(), {most_inner_sizes, static_cast<std::size_t>(inner_budget_ns / round_ns)}))
      if (hold(each.candidate)) probes.push_back(each);
    std::map<std::int64_t, Comparison> by_size;
    sample(probes, [&](const Probe& probe, const std::vector<double>& samples_ns) {
      if (!samples_ns.empty()) by_size[probe.size].push_back({probe.candidate, samples_ns});
    });
    PartingSizes found;
    for (auto& [size, comparison] : by_size) {
      remove_rejected(comparison);
      const auto end = static_cast<std::size_t>(std::ranges::lower_bound(ends(), size) - ends().begin());
      const Comparison& at_end = measured_.comparisons[end];
      // All that contended at the end may have been rejected here.
      if (at_end.empty() ? !comparison.empty() : parts_interval(comparison, fastest_of(at_end, libraries_), libraries_))
        found.emplace_back(size, std::move(comparison));
    }
    return found;
  }

  /// Loads a candidate again that was dropped when it was beaten, or brings in one that was not tried.
  bool hold(std::size_t candidate) {
    if (tune_.trials.is_in(candidate)) return true;
    if (rejected_.contains(candidate)) return false;
    const bool is_in = tune_.hold(candidate);
    if (is_in) {
      held_.push_back(candidate);
    } else if (tune_.candidates.list[candidate].admission.verdict != store::Verdict::not_timed) {
      remove(candidate);
    }
    return is_in;
  }

  /// Probes of one size stand together. A candidate that fails at one size is rejected.
  void sample(const std::vector<Probe>& probes,
              const std::function<void(const Probe&, const std::vector<double>&)>& report) {
    if (probes.empty()) return;
    std::vector<Problem> sizes;
    std::vector<Point> points;
    for (const Probe& probe : probes) {
      if (sizes.empty() || sizes.back().axes[axis_] != probe.size) sizes.push_back(at_size(probe.size));
      points.push_back({probe.candidate, sizes.size() - 1});
    }
    tune_.trials.bench().set_sizes(sizes);
    const std::vector<Samples> samples = tune_.trials.sample(points, rounds_, [this](Point) { return longest_ns_; });
    for (std::size_t i = 0; i < probes.size(); ++i) {
      if (samples[i].failure.empty() || rejected_.contains(probes[i].candidate)) continue;
      tune_.reject(probes[i].candidate, samples[i].failure);
      remove(probes[i].candidate);
    }
    for (std::size_t i = 0; i < probes.size(); ++i)
      report(probes[i], rejected_.contains(probes[i].candidate) ? std::vector<double>() : samples[i].ns);
  }

  /// Removes the measurements of a rejected candidate, so that it is not chosen.
  void remove(std::size_t candidate) {
    rejected_.insert(candidate);
    for (Comparison& each : measured_.comparisons) remove_rejected(each);
    std::ranges::fill(measured_.costs[candidate], Cost());
  }
  void remove_rejected(Comparison& comparison) const {
    std::erase_if(comparison, [this](const Compared& each) { return rejected_.contains(each.candidate); });
  }

  void merge(PartingSizes&& found) {
    for (auto& [size, comparison] : found) {
      remove_rejected(comparison);
      if (comparison.empty()) continue;
      const auto place = std::ranges::lower_bound(ends(), size) - ends().begin();
      measured_.sizes = with_ends(request_.bucket.edge, measured_.sizes, {&size, 1});
      for (std::vector<Cost>& costs : measured_.costs) costs.insert(costs.begin() + place, Cost());
      for (const Compared& each : comparison) {
        std::vector<double> sorted = each.samples_ns;
        measured_.costs[each.candidate][static_cast<std::size_t>(place)] = summarise(sorted);
      }
      measured_.comparisons.insert(measured_.comparisons.begin() + place, std::move(comparison));
    }
  }

  const IntervalsRequest& tune_;
  const TuneRequest& request_;
  Measured& measured_;
  const std::vector<std::size_t>& libraries_;
  std::size_t axis_;
  double longest_ns_;    // of one that contends at the bucket's upper edge
  std::int64_t rounds_;  // samples of a candidate at one size
  std::vector<std::size_t> held_;
  std::set<std::size_t> rejected_;
};

}  // namespace

void part_intervals(const IntervalsRequest& tune, Measured& measured) {
  if (measured.sizes.axes.size() != 1 || measured.comparisons.size() < 2 || measured.comparisons.back().empty()) return;
  Parting parting(tune, measured);
  if (tune.at_inner_sizes) parting.at_inner_sizes();
  parting.by_halving();
}

}  // namespace kiln::tune
