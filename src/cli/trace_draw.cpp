#include "cli/trace_draw.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <set>

#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

// std::mt19937_64 is specified exactly; the standard library's distributions are not, so these replace them.
class Source {
 public:
  explicit Source(std::uint64_t seed) : random_(seed) {}
  /// Returns a number in (0, 1).
  double uniform() { return (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53; }
  /// By Box and Muller; uses one number of the pair.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  std::size_t index(std::size_t count) {
    return std::min(static_cast<std::size_t>(uniform() * static_cast<double>(count)), count - 1);
  }

 private:
  std::mt19937_64 random_;
};

// A median at an end of its range may be rounded past it, from where a small sigma never draws a legal size.
constexpr int most_tries = 10000;

std::int64_t draw_size(const manifest::Axis& axis, const Range& range, const Draw& draw, Source& source) {
  if (range.low == range.high) return range.low;
  const auto low = static_cast<double>(range.low), high = static_cast<double>(range.high);
  double value = low - 1;
  if (draw.distribution == Distribution::uniform) {
    value = low + source.uniform() * (high - low + 1);
  } else {
    const double centre = std::log(draw.median.value_or(std::sqrt(low * high)));
    for (int tries = 0; (value < low || value >= high + 1) && tries < most_tries; ++tries)
      value = std::exp(centre + draw.sigma * source.normal());
    value = std::max(value, low);
  }
  // A double cannot hold sizes near 2^63 exactly; rounded up, they would be out of range.
  const std::int64_t size = value >= high ? range.high : std::min(static_cast<std::int64_t>(value), range.high);
  const std::int64_t multiple = size - size % axis.multiple_of;
  return multiple < range.low ? multiple + axis.multiple_of : multiple;
}

void check(const Draw& draw, const manifest::Op& op, const ProblemSet& set) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorKind::bad_input, message); };
  if (draw.count < 1) refuse("the count of problems must be 1 or more");
  if (!(draw.sigma > 0) || draw.sigma > 10) refuse("sigma must be above 0, and 10 at most");
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    for (const Range& range : set.axes[i])
      if (draw.median && range.low < range.high &&
          !(*draw.median >= static_cast<double>(range.low) && *draw.median <= static_cast<double>(range.high)))
        refuse(
            fmt::format("the median {} lies outside {}={}..{}", *draw.median, op.axes[i].name, range.low, range.high));
}

}  // namespace

std::vector<Problem> draw_problems(const manifest::Op& op, const ProblemSet& set, const Draw& draw) {
  check(draw, op, set);
  constexpr std::int64_t patience = 100000;  // draws in a row without a new problem
  Source source(draw.seed);
  std::set<std::pair<decltype(Problem::axes), decltype(Problem::selections)>> seen;
  std::vector<Problem> problems;
  std::int64_t repeated = 0;
  while (static_cast<std::int64_t>(problems.size()) < draw.count) {
    Problem problem;
    for (std::size_t i = 0; i < set.axes.size(); ++i)
      problem.axes[i] = draw_size(op.axes[i], set.axes[i][source.index(set.axes[i].size())], draw, source);
    for (std::size_t i = 0; i < set.selections.size(); ++i) {
      const auto& values = set.selections[i];
      const std::size_t drawn = source.index(std::max<std::size_t>(values.size(), 1));
      problem.selections[i] = values.empty() ? op.selections[i].default_beside(problem) : values[drawn];
    }
    if (manifest::is_valid(op, problem) && seen.emplace(problem.axes, problem.selections).second) {
      problems.push_back(problem);
      repeated = 0;
    } else if (++repeated > patience) {
      throw Error(ErrorKind::bad_input,
                  fmt::format("{} were asked for and only {} found in {} draws; give wider ranges{}",
                              counted(draw.count, "distinct problem"), problems.size(), patience,
                              draw.distribution == Distribution::lognormal ? " or a larger --sigma" : ""));
    }
  }
  return problems;
}

}  // namespace kiln::cli
