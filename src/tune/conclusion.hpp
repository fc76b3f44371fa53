// Makes a record from a search's comparisons: which configs are kept, for which sizes, and how they are launched.
#pragma once

#include <functional>

#include "tune/bench.hpp"
#include "tune/candidates.hpp"
#include "tune/machine.hpp"
#include "tune/tune_bucket.hpp"

namespace kiln::tune {

/// The measurements of a search.
struct Measured {
  answer::TimedSizes sizes;
  std::vector<Comparison> comparisons;   // by size
  std::vector<std::vector<Cost>> costs;  // by candidate, then size
};

/// The state of a tune whose search is over.
struct SearchOutcome {
  const TuneRequest& request;
  const Candidates& candidates;
  const Measured& measured;
  Bench& bench;
  Machine& machine;
  /// Runs device work and reports its time to TuneRequest::pace. Throws Error(interrupted) before the work when asked
  /// to stop.
  std::function<void(const std::function<void()>&)> paced;
  std::int64_t brought_in = 0;  // candidates
};

/// Throws Error(not_tuned) when no candidate gave a right result.
TuneResult conclude(const SearchOutcome& outcome);

}  // namespace kiln::tune
