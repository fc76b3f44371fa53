// Whether a choice of a record still holds what it promised: decided from times alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/record.hpp"
#include "tune/search.hpp"

namespace kiln::cli::bench {

/// Slower by more than `tolerance` (0.05 for 5 %), and the 95 % intervals do not meet. A stored cost of 0 says nothing.
bool is_slower(const tune::Cost& now, const store::Choice& then, double tolerance);
/// The same for two that were timed in turns, by the median of their ratio and its interval.
bool is_slower(std::span<const double> a_ns, std::span<const double> b_ns, double tolerance);

/// now / then; 0 when one of them is not known.
double change_of(const tune::Cost& now, double then_ns);

}  // namespace kiln::cli::bench
