// From what a search compared to a record: which configs are kept, for which sizes, launched how.
#pragma once

#include <functional>

#include "tune/bench.hpp"
#include "tune/candidates.hpp"
#include "tune/tuner.hpp"

namespace kiln::tune {

/// What was measured: at each length, what was compared there and what each candidate takes.
struct Measured {
  Lengths lengths;
  std::vector<Comparison> comparisons;
  std::vector<std::vector<Cost>> costs;  // by candidate, then length
};

/// What a tune has in hand when its search is over.
struct Tried {
  const TuneRequest& request;
  const Candidates& candidates;
  const Measured& measured;
  Bench& bench;
  Cubins& cubins;
  /// Runs a stretch of device work, as TuneRequest::pace asks; throws Error(interrupted) before it when asked to stop.
  std::function<void(const std::function<void()>&)> paced;
  std::int64_t brought_in = 0;
};

/// Throws Error(not_tuned) when nothing came out right.
TuneResult conclude(const Tried& tried);

}  // namespace kiln::tune
