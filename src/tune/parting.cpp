#include "tune/parting.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "answer/model.hpp"
#include "kiln/error.hpp"
#include "tune/inner_sizes.hpp"
#include "tune/switches.hpp"
#include "tune/tolerances.hpp"

namespace kiln::tune {
namespace {

class Parting {
 public:
  Parting(const PartingRequest& tune, Measured& measured)
      : tune_(tune),
        request_(tune.request),
        measured_(measured),
        libraries_(tune.candidates.expectations.of_libraries),
        axis_(measured.sizes.axes.front()),
        multiple_(request_.op.axes[axis_].multiple_of),
        low_(manifest::low_corner(request_.op, request_.bucket).axes[axis_]),
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

  void at_switches() {
    Switches switches(low_, multiple_, ends(), measured_.comparisons, libraries_);
    for (auto probes = switches.next(); !probes.empty(); probes = switches.next()) {
      std::erase_if(probes, [&](const Probe& probe) { return !tune_.trials.is_in(probe.candidate); });
      sample(probes,
             [&](const Probe& probe, const std::vector<double>& samples_ns) { switches.report(probe, samples_ns); });
    }
    merge(switches.found());
  }

 private:
  using Found = std::vector<std::pair<std::int64_t, Comparison>>;  // by size, ascending

  [[nodiscard]] const std::vector<std::int64_t>& ends() const { return measured_.sizes.ends.front(); }

  /// Returns the model's time, infinity where the candidate is not legal.
  [[nodiscard]] double estimate_at(std::size_t candidate, std::int64_t size) const {
    const Candidate& of = tune_.candidates.list[candidate];
    Problem at = request_.bucket;
    at.axes[axis_] = size;
    if (manifest::broken_constraint(request_.op, *of.implementation, at, request_.device.facts, of.config))
      return std::numeric_limits<double>::infinity();
    return answer::estimate(request_.op, *of.implementation, at, request_.device.facts, of.config, request_.regime).ns;
  }

  [[nodiscard]] std::vector<InnerSize> chosen_sizes() const {
    const double round_ns = static_cast<double>(rounds_) * std::max(longest_ns_, 1.0);
    return inner_sizes(
        {low_, multiple_, ends(), measured_.comparisons, measured_.costs, libraries_, tune_.candidates.proposals,
         [this](std::size_t candidate, std::int64_t size) { return estimate_at(candidate, size); }},
        {most_inner_sizes, static_cast<std::size_t>(inner_budget_ns / round_ns)});
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

  Found compared_inside() {
    std::vector<Probe> probes;
    for (const InnerSize& each : chosen_sizes())
      for (const std::size_t candidate : each.candidates)
        if (hold(candidate)) probes.push_back({candidate, each.size});
    std::map<std::int64_t, Comparison> by_size;
    sample(probes, [&](const Probe& probe, const std::vector<double>& samples_ns) {
      if (!samples_ns.empty()) by_size[probe.size].push_back({probe.candidate, samples_ns});
    });
    Found found;
    for (auto& [size, comparison] : by_size) {
      remove_rejected(comparison);
      const auto end = static_cast<std::size_t>(std::ranges::lower_bound(ends(), size) - ends().begin());
      const Comparison& at_end = measured_.comparisons[end];
      // All that contended at the end may have been rejected here.
      if (at_end.empty() ? !comparison.empty() : parts_interval(comparison, at_end, libraries_))
        found.emplace_back(size, std::move(comparison));
    }
    return found;
  }

  /// Probes of one size stand together. A candidate that fails at one size is rejected.
  void sample(const std::vector<Probe>& probes,
              const std::function<void(const Probe&, const std::vector<double>&)>& report) {
    if (probes.empty()) return;
    std::vector<Problem> sizes;
    std::vector<Point> points;
    for (const Probe& probe : probes) {
      if (sizes.empty() || sizes.back().axes[axis_] != probe.size)
        sizes.emplace_back(request_.bucket).axes[axis_] = probe.size;
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

  void merge(Found found) {
    for (auto& each : found) remove_rejected(each.second);
    std::erase_if(found, [](const auto& each) { return each.second.empty(); });
    std::vector<std::int64_t> sizes;
    for (const auto& each : found) sizes.push_back(each.first);
    std::vector<std::int64_t> before = ends();
    measured_.sizes = with_ends(request_.bucket, measured_.sizes, sizes);
    for (const auto& [size, comparison] : found) {
      const auto place = std::ranges::lower_bound(before, size) - before.begin();
      before.insert(before.begin() + place, size);
      for (std::vector<Cost>& costs : measured_.costs) costs.insert(costs.begin() + place, Cost());
      for (const Compared& each : comparison) {
        std::vector<double> sorted = each.samples_ns;
        measured_.costs[each.candidate][static_cast<std::size_t>(place)] = summarise(sorted);
      }
      measured_.comparisons.insert(measured_.comparisons.begin() + place, comparison);
    }
  }

  const PartingRequest& tune_;
  const TuneRequest& request_;
  Measured& measured_;
  const std::vector<std::size_t>& libraries_;
  std::size_t axis_;
  std::int64_t multiple_, low_;
  double longest_ns_;    // of one that contends at the bucket's upper edge
  std::int64_t rounds_;  // samples of a candidate at one size
  std::vector<std::size_t> held_;
  std::set<std::size_t> rejected_;
};

}  // namespace

void part_intervals(const PartingRequest& tune, Measured& measured) {
  if (measured.sizes.axes.size() != 1 || measured.comparisons.size() < 2 || measured.comparisons.back().empty()) return;
  Parting parting(tune, measured);
  if (tune.at_inner_sizes) parting.at_inner_sizes();
  parting.at_switches();
}

}  // namespace kiln::tune
