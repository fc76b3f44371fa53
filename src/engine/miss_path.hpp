// A bucket that is not hot: look it up, load it, or tune it; then publish.
#pragma once

#include "engine/op_state.hpp"

namespace kiln::engine {

/// Makes the bucket ready once, however many threads ask: the plan of its upper edge. Throws Error(capture) on a capturing stream for one
/// that is not.
const PlanState* prepare(OpState& state, const Problem& problem, CUstream stream);
/// That, and what launches of the problem need besides, for its stream.
const PlanState* make_ready(OpState& state, const Problem& problem, CUstream stream);
/// Makes a bucket's record ready in place of what serves it now.
void adopt(OpState& state, Resolution resolution);
/// Makes every record of the files ready that has machine code there; before anybody else has this op.
void load_all(OpState& state);

}  // namespace kiln::engine
