// A bucket that is not hot: look it up, load it, or tune it; then publish.
#pragma once

#include <cstdint>

#include "plan/op_state.hpp"

namespace kiln::engine {

struct EngineState;

/// Returns the plan of the bucket's upper edge. Looks up, loads or tunes a bucket that is not hot, once for all threads
/// that ask. Throws Error(capture) where `stream` captures and the bucket is not hot, and Error(not_tuned) on a miss
/// under MissPolicy::error. `may_stand_in`: the plan may be a stand-in's where a compile is needed.
const plan::PlanState* make_hot(plan::OpState& op_state, const Problem& problem, CUstream stream,
                                bool may_stand_in = false);
/// make_hot() without stand-ins, then loads what serves this very problem, and allocates the workspace for `stream`
/// unless it captures.
const plan::PlanState* make_ready(plan::OpState& op_state, const Problem& problem, CUstream stream);
enum class InPlaceOf : std::uint8_t { anything, stand_in };
/// Loads and publishes the bucket's new answers in place of what serves it; or only if a stand-in serves sizes of it.
void adopt(plan::OpState& op_state, answer::Resolution resolution, InPlaceOf present = InPlaceOf::anything);
/// Publishes the bucket's own answers where a stand-in serves sizes of it. Compiles what is missing. Then no stand-in
/// serves the bucket. Precondition: the engine's context is current.
void replace_stand_in(plan::OpState& op_state, const Problem& bucket);
/// Queues what the background does for published buckets, where memory did not suffice for that before.
void catch_up(EngineState& engine) noexcept;
/// Loads every record whose machine code a file has. Compiles nothing. Called before another thread has the op.
void load_all(plan::OpState& op_state);

}  // namespace kiln::engine
