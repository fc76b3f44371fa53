// Parts the intervals of a searched bucket at sizes inside them where another candidate is the fastest.
#pragma once

#include <functional>
#include <string>

#include "tune/candidates.hpp"
#include "tune/conclusion.hpp"
#include "tune/request.hpp"
#include "tune/trials.hpp"

namespace kiln::tune {

/// A tune whose search is over.
struct PartingRequest {
  const TuneRequest& request;
  const Candidates& candidates;
  Trials& trials;
  bool at_inner_sizes = true;  // false: only at the sizes where the candidates of two ends change places
  /// Brings a candidate in, unless it is. Returns false for one that is rejected, or that was not tried and may not be any more. Throws as
  /// Trials::bring_in() does, and then leaves the candidate as it was.
  std::function<bool(std::size_t candidate)> hold;
  /// Rejects a candidate that failed while it was sampled.
  std::function<void(std::size_t candidate, const std::string& failure)> reject;
};

/// Adds sizes to what a search measured, on a single open axis: sizes inside an interval where another candidate is the fastest. Removes the
/// measurements of candidates that are rejected meanwhile. Where memory does not suffice for inner sizes, parts without them.
void part_intervals(const PartingRequest& tune, Measured& measured);

}  // namespace kiln::tune
