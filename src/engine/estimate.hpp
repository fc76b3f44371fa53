// How long a launch would take, for who must weigh launches that nobody has timed.
#pragma once

#include "manifest/problem.hpp"
#include "store/layers.hpp"

namespace kiln::engine {

/// Nanoseconds of device time at these real sizes: what the bucket's own record took, else what the model, corrected by the records near
/// it, expects of the best that is known for it; scaled to the sizes as the op's cost expressions say. Never 0.
double expected_ns(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, Regime regime,
                   store::Layers& layers);

/// How much longer, by the op's cost expressions, one problem takes than another; for the problems of one bucket.
double relative_cost(const manifest::Op& op, const Problem& problem, const Problem& other,
                     const manifest::DeviceFacts& device);

}  // namespace kiln::engine
