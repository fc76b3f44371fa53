#include "answer/portfolio.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace kiln::answer {
namespace {

using BySize = std::span<const std::vector<RelativeTime>>;

const RelativeTime* find(const std::vector<RelativeTime>& size, std::size_t candidate) {
  const auto found = std::ranges::find(size, candidate, &RelativeTime::candidate);
  return found == size.end() ? nullptr : &*found;
}

bool is_allowed(const RelativeTime& time, double tolerance) { return time.ties || time.behind <= 1 + tolerance; }

/// Returns the candidate that covers most of the uncovered sizes, or nothing when none covers any.
std::optional<std::size_t> best_cover(BySize sizes, const std::vector<bool>& covered, double tolerance) {
  std::set<std::size_t> candidates;
  for (const auto& size : sizes)
    for (const RelativeTime& each : size) candidates.insert(each.candidate);
  std::optional<std::size_t> best;
  std::tuple<std::size_t, bool, double, int> least;
  for (const std::size_t candidate : candidates) {
    std::size_t left = 0;
    double behind = 0, served = 0;
    int registers = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (covered[i]) continue;
      const RelativeTime* time = find(sizes[i], candidate);
      if (time == nullptr || !is_allowed(*time, tolerance)) {
        ++left;
        continue;
      }
      behind += std::log(time->behind);
      registers = time->registers;
      ++served;
    }
    if (served == 0) continue;
    // The order of ties is noise.
    const double mean = tolerance > 0 ? std::floor(behind / served / behind_step) : 0;
    const std::tuple rank(left, candidate != 0, mean, registers);
    if (best && !(rank < least)) continue;
    best = candidate;
    least = rank;
  }
  return best;
}

/// Returns the chosen candidates, or nothing when a size with candidates cannot be covered within the tolerance.
std::optional<std::vector<std::size_t>> cover(BySize sizes, double tolerance) {
  std::vector<bool> covered(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) covered[i] = sizes[i].empty();
  std::vector<std::size_t> chosen;
  while (const auto next = best_cover(sizes, covered, tolerance)) {
    chosen.push_back(*next);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const RelativeTime* time = find(sizes[i], *next);
      if (time != nullptr && is_allowed(*time, tolerance)) covered[i] = true;
    }
  }
  if (std::ranges::find(covered, false) != covered.end()) return std::nullopt;
  return chosen;
}

Assignment assign(BySize sizes, std::span<const std::size_t> chosen) {
  Assignment assignment(sizes.size());
  std::optional<std::size_t> above;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const RelativeTime* best = nullptr;
    for (const std::size_t each : chosen)
      if (const RelativeTime* time = find(sizes[i], each);
          time != nullptr && (best == nullptr || time->behind < best->behind))
        best = time;
    if (best == nullptr) continue;
    const RelativeTime* same = above ? find(sizes[i], *above) : nullptr;
    const bool stays = same != nullptr && same->behind <= as_good * best->behind;
    // A tie goes to the candidate that was chosen first.
    const auto first_tie = std::ranges::find_if(chosen, [&](std::size_t each) {
      const RelativeTime* time = find(sizes[i], each);
      return time != nullptr && time->ties && time->behind <= as_good * best->behind;
    });
    assignment[i] = stays ? *above : first_tie != chosen.end() ? *first_tie : best->candidate;
    above = assignment[i];
  }
  return assignment;
}

}  // namespace

namespace {

/// Returns how many of the chosen have machine code.
std::size_t with_code(BySize sizes, std::span<const std::size_t> chosen) {
  return static_cast<std::size_t>(std::ranges::count_if(chosen, [&](std::size_t candidate) {
    return std::ranges::any_of(sizes, [&](const auto& size) {
      const RelativeTime* time = find(size, candidate);
      return time != nullptr && time->has_code;
    });
  }));
}

/// Adds what has no machine code and ties where all of the chosen are behind.
void add_without_code(BySize sizes, std::vector<std::size_t>& chosen) {
  for (const auto& size : sizes) {
    const bool is_tied = std::ranges::any_of(size, [&](const RelativeTime& each) {
      return each.ties && std::ranges::find(chosen, each.candidate) != chosen.end();
    });
    const auto free = std::ranges::find_if(size, [](const RelativeTime& each) { return each.ties && !each.has_code; });
    if (!is_tied && free != size.end()) chosen.push_back(free->candidate);
  }
}

}  // namespace

Assignment choose_configs(BySize sizes, std::size_t at_most) {
  std::vector<std::size_t> chosen;
  for (const double tolerance : widened) {
    auto covers = cover(sizes, tolerance);
    if (!covers) continue;
    chosen = std::move(*covers);
    if (with_code(sizes, chosen) <= at_most) break;
  }
  add_without_code(sizes, chosen);
  return assign(sizes, chosen);
}

std::optional<std::size_t> choose_one(std::span<const std::vector<double>> ns) {
  std::vector<double> fastest;
  for (const auto& each : ns) {
    fastest.resize(each.size(), std::numeric_limits<double>::infinity());
    for (std::size_t size = 0; size < each.size(); ++size)
      if (each[size] > 0) fastest[size] = std::min(fastest[size], each[size]);
  }
  const auto sizes = std::ranges::count_if(fastest, [](double each) { return std::isfinite(each); });
  const auto times_of = [&](const std::vector<double>& candidate) {  // over the fastest, where it was timed
    std::vector<double> times;
    for (std::size_t size = 0; size < candidate.size(); ++size)
      if (candidate[size] > 0) times.push_back(candidate[size] / fastest[size]);
    return times;
  };
  const auto behind = [&](const std::vector<double>& times) {
    double sum = 0, worst = worth_a_sample;
    for (const double each : times) {
      sum += std::log(each);
      worst = std::max(worst, each);
    }
    return sum + static_cast<double>(sizes - std::ssize(times)) * std::log(worst);
  };
  std::optional<std::size_t> best;
  // Of what was timed at fewer than half of the sizes too little is known.
  for (const bool at_half : {true, false}) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t candidate = 0; candidate < ns.size(); ++candidate) {
      const std::vector<double> times = times_of(ns[candidate]);
      if (times.empty() || (at_half && 2 * std::ssize(times) < sizes)) continue;
      if (const double sum = behind(times); sum < least) {
        least = sum;
        best = candidate;
      }
    }
    if (best) break;
  }
  return best;
}

}  // namespace kiln::answer
