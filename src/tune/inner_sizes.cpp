#include "tune/inner_sizes.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "tune/tolerances.hpp"

namespace kiln::tune {
namespace {

using MaybeCandidate = std::optional<std::size_t>;

bool holds(std::span<const std::size_t> some, std::size_t candidate) {
  return std::ranges::find(some, candidate) != some.end();
}

MaybeCandidate winner(const Comparison& comparison, std::span<const std::size_t> but) {
  MaybeCandidate best;
  double least = std::numeric_limits<double>::infinity();
  for (const Compared& each : comparison) {
    if (each.samples_ns.empty() || holds(but, each.candidate)) continue;
    if (const double ns = median_ns(each); ns < least) {
      least = ns;
      best = each.candidate;
    }
  }
  return best;
}

class InnerSizes {
 public:
  explicit InnerSizes(const SearchedAxis& searched) : searched_(searched) {}

  [[nodiscard]] std::vector<InnerSize> choose(const InnerLimits& limits) const {
    const std::vector<std::int64_t> stairs_ends = by_model(limits.sizes);
    for (std::size_t in_all = 2 * limits.sizes; in_all > 0; --in_all) {
      std::vector<std::int64_t> chosen = by_proposals(in_all / 2);
      const std::size_t by_stairs = std::min(in_all - in_all / 2, stairs_ends.size());
      for (const std::int64_t size : std::span(stairs_ends).first(by_stairs)) chosen.push_back(size);
      std::vector<InnerSize> sizes = with_candidates(std::move(chosen));
      std::size_t points = 0;
      for (const InnerSize& each : sizes) points += each.candidates.size();
      if (points <= limits.points) return sizes;
    }
    return {};
  }

 private:
  /// Returns the sizes at which there is something to compare, ascending.
  [[nodiscard]] std::vector<InnerSize> with_candidates(std::vector<std::int64_t> chosen) const {
    std::ranges::sort(chosen);
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    std::vector<InnerSize> sizes;
    for (const std::int64_t size : chosen)
      if (InnerSize each{size, candidates_at(size)}; each.candidates.size() > 1) sizes.push_back(std::move(each));
    return sizes;
  }

  /// Returns the index of the end that stands for a size.
  [[nodiscard]] std::size_t end_of(std::int64_t size) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(searched_.ends, size) - searched_.ends.begin());
  }
  [[nodiscard]] bool is_library(std::size_t candidate) const { return holds(searched_.of_libraries, candidate); }

  /// Returns infinity for a candidate that was timed at neither end of the size's interval. A library's time is taken as that at the end.
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
    std::vector<std::int64_t> sizes(searched_.ends.begin(), searched_.ends.end());
    const std::int64_t width = searched_.ends.back() - searched_.low + 1, steps = std::min(width, sizes_scanned);
    for (std::int64_t i = 1; i < steps; ++i) {
      const std::int64_t size = searched_.low - 1 + width * i / steps;
      if (size - size % searched_.multiple >= searched_.low) sizes.push_back(size - size % searched_.multiple);
    }
    std::ranges::sort(sizes);
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
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
    std::vector<std::int64_t> all, some;
    for (const FirstProposal& each : searched_.proposals) {
      const std::size_t end = end_of(each.last_size);
      if (end == searched_.ends.size() || searched_.ends[end] == each.last_size) continue;
      if (winner(searched_.comparisons[end], {}) != each.candidate) all.push_back(each.last_size);
    }
    const std::size_t count = std::min(at_most, all.size());
    for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
    return some;
  }

  [[nodiscard]] std::vector<std::size_t> candidates_at(std::int64_t size) const {
    std::vector<std::size_t> candidates;
    const auto add = [&](const MaybeCandidate& candidate) {
      if (candidate && !holds(candidates, *candidate)) candidates.push_back(*candidate);
    };
    const std::size_t end = end_of(size);
    for (const std::size_t at : {end, end - 1}) {
      if (at >= searched_.ends.size()) continue;
      add(winner(searched_.comparisons[at], {}));
      add(winner(searched_.comparisons[at], searched_.of_libraries));
    }
    std::vector<std::pair<double, std::size_t>> ranked;
    for (std::size_t i = 0; i < searched_.costs.size(); ++i)
      if (const double ns = expected(i, size); std::isfinite(ns) && !is_library(i)) ranked.emplace_back(ns, i);
    std::ranges::sort(ranked);
    for (std::size_t i = 0; i < std::min(most_expected, ranked.size()); ++i) add(ranked[i].second);
    const auto proposed = std::ranges::lower_bound(searched_.proposals, size, {}, &FirstProposal::last_size);
    if (proposed != searched_.proposals.end()) add(proposed->candidate);
    return candidates;
  }

  const SearchedAxis& searched_;
};

}  // namespace

std::vector<InnerSize> inner_sizes(const SearchedAxis& searched, const InnerLimits& limits) {
  return InnerSizes(searched).choose(limits);
}

bool parts_interval(const Comparison& at_size, const Comparison& at_end, std::span<const std::size_t> of_libraries) {
  for (const std::span<const std::size_t> but : {std::span<const std::size_t>(), of_libraries}) {
    const MaybeCandidate serves = winner(at_end, but), best = winner(at_size, but);
    if (!serves || !best || *serves == *best) continue;
    const auto of = [&](std::size_t candidate) { return std::ranges::find(at_size, candidate, &Compared::candidate); };
    if (of(*serves) == at_size.end() || of(*serves)->samples_ns.empty()) return true;  // it cannot be launched here
    if (ratio(of(*serves)->samples_ns, of(*best)->samples_ns).median_ns > worth_a_part) return true;
  }
  return false;
}

}  // namespace kiln::tune
