// Decides from times alone whether a config has become slower.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/record.hpp"
#include "tune/search.hpp"

namespace kiln::cli::bench {

/// True when `now` is slower by more than `tolerance` (0.05 for 5 %) and the 95 % intervals are disjoint. False for a stored cost of 0.
bool is_slower(const tune::Cost& now, const store::Choice& then, double tolerance);
/// The same for two configs that were timed in turns, by the median and the interval of their ratio.
bool is_slower(std::span<const double> a_ns, std::span<const double> b_ns, double tolerance);

/// Returns now / then, or 0 when one of them is not known.
double change_of(const tune::Cost& now, double then_ns);

}  // namespace kiln::cli::bench
