// Expected device times of launches that were not timed.
#pragma once

#include "engine/resolver.hpp"

namespace kiln::engine {

/// Nanoseconds of device time at these real sizes, never 0: the time of the bucket's record, else the model's estimate of the best known
/// config, corrected by near records. Scaled from the bucket's upper edge to the sizes by the op's cost expressions.
double expected_ns(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, Regime regime,
                   store::Layers& layers);

/// The time of `problem` over that of `other`, by the op's cost expressions. Both are of one bucket.
double relative_cost(const manifest::Op& op, const Problem& problem, const Problem& other,
                     const manifest::DeviceFacts& device);

/// The answer's expected time over that of a tuned config: 1 for a hit. For a fallback the median slowdown of such fallbacks in near records,
/// else the model's estimate, else the bound that the op's cost gives.
double expected_slowdown(const manifest::Op& op, const Answer& answer, const Problem& bucket,
                         const manifest::DeviceFacts& device, Regime regime, store::Layers& layers);

}  // namespace kiln::engine
