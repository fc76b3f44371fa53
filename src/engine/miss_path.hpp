// A bucket that is not hot: look it up, load it, or tune it; then publish.
#pragma once

#include "plan/op_state.hpp"

namespace kiln::engine {

/// Returns the plan of the bucket's upper edge. Looks up, loads or tunes a bucket that is not hot, once for all threads
/// that ask. Throws Error(capture) where `stream` captures and the bucket is not hot, and Error(not_tuned) on a miss
/// under MissPolicy::error.
const plan::PlanState* make_hot(plan::OpState& op_state, const Problem& problem, CUstream stream);
/// make_hot(), then loads what serves this very problem, and allocates the workspace for `stream` unless it captures.
const plan::PlanState* make_ready(plan::OpState& op_state, const Problem& problem, CUstream stream);
/// Loads and publishes the bucket's new record in place of what serves it.
void adopt(plan::OpState& op_state, answer::Resolution resolution);
/// Loads every record whose machine code a file has. Compiles nothing. Called before another thread has the op.
void load_all(plan::OpState& op_state);

}  // namespace kiln::engine
