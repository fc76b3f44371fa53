// Sizes inside intervals where another candidate may be faster than the one that is fastest at the interval's end. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tune/candidates.hpp"

namespace kiln::tune {

/// A bucket of one open axis after its search. `costs[candidate][i]` and `comparisons[i]` are of `ends[i]`, which ascend.
struct SearchedAxis {
  std::int64_t low = 0, multiple = 1;
  std::span<const std::int64_t> ends;
  std::span<const Comparison> comparisons;
  std::span<const std::vector<Cost>> costs;
  std::span<const std::size_t> of_libraries;
  std::span<const FirstProposal> proposals;
  /// The model's time of a candidate at a size, infinity where it is not legal.
  std::function<double(std::size_t candidate, std::int64_t size)> expected_ns;
};

struct InnerSize {
  std::int64_t size = 0;
  std::vector<std::size_t> candidates;  // to be compared there
};

/// A point is a candidate at a size.
struct InnerLimits {
  std::size_t sizes = 0;   // for each reason
  std::size_t points = 0;  // in all
};

/// Long launches are timed at few ends, between which stairs of other configs end and a library proposes other algorithms. Returns sizes for
/// these two reasons within the limits, ascending: about as many for either, and more for one where the other has few. A measured candidate's
/// time at a size is that at the interval's end, scaled as the model says. Each size comes with the fastest at both ends of its interval, with
/// and without libraries, the two fastest expected there, and the proposal with the next last size.
std::vector<InnerSize> inner_sizes(const SearchedAxis& searched, const InnerLimits& limits);

/// Whether another candidate than the one that is fastest at the interval's end, with or without libraries, is more than 1.5 % faster.
bool parts_interval(const Comparison& at_size, const Comparison& at_end, std::span<const std::size_t> of_libraries);

}  // namespace kiln::tune
