// How long a launch would take, for who must weigh launches that nobody has timed.
#pragma once

#include "spec/problem.hpp"
#include "store/layers.hpp"

namespace kiln::engine {

/// Nanoseconds of device time at these real sizes: the nearest record's cost, scaled as the op's cost expressions change between
/// its bucket and the problem; without a record, what the device's memory and arithmetic allow at best. Never 0.
double expected_ns(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime,
                   store::Layers& layers);

/// How much longer, by the op's cost expressions, one problem takes than another; for the problems of one bucket.
double relative_cost(const spec::Op& op, const Problem& problem, const Problem& other, const spec::DeviceFacts& device);

}  // namespace kiln::engine
