// Chooses the few configs that serve a bucket, from the comparisons at its sizes. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "answer/tolerances.hpp"

namespace kiln::answer {

/// How a candidate compares at one size.
struct RelativeTime {
  std::size_t candidate = 0;
  double behind = 1;     // its time over the best one's
  bool ties = false;     // with the best, as in choose()
  int registers = 0;     // per thread
  bool has_code = true;  // false for what a library alone computes
};

/// By size, the candidate that serves it, or nothing.
using Assignment = std::vector<std::optional<std::size_t>>;

/// Chooses the fewest candidates of which one ties at every size, by a greedy cover (Chvatal 1979). The tolerance of a
/// tie is widened in steps while more than `at_most` with machine code are needed. Of candidates that cover as many
/// sizes the baseline (0) is chosen, then the least behind, the fewest registers and the lowest index. Where all chosen
/// are behind by more than a tie, what ties without machine code is added. The fastest of the chosen serves each size.
/// But a size keeps the config of the next larger one where that is as_good, for fewer intervals.
Assignment choose_configs(std::span<const std::vector<RelativeTime>> sizes, std::size_t at_most = most_configs);

/// Returns the candidate that serves a whole bucket best: the one that is least behind the fastest of each size, on the
/// geometric mean. `ns`: times by candidate, then size. 0: not timed there, which counts as worth_a_sample times the
/// fastest, or as the worst of its others. One that was timed at fewer than half of the sizes is chosen only where all
/// were. Nothing where nobody was timed.
std::optional<std::size_t> choose_one(std::span<const std::vector<double>> ns);

}  // namespace kiln::answer
