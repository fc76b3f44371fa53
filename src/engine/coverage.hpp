// What a capture would find: made ready ahead of it, or only looked at.
#pragma once

#include <span>

#include "engine/op_state.hpp"

namespace kiln::engine {

/// Engine::prepare: all that captures of these problems on the stream need. Throws Error(capture) when it is capturing, and
/// Error(interrupted); what else fails is told as a gap.
Coverage prepare_all(OpState& state, std::span<const Problem> problems, CUstream stream);
/// Engine::coverage of these problems.
Coverage cover(OpState& state, std::span<const Problem> problems, CUstream stream);
/// Adds the buckets that are hot, workspaces left out.
void cover_ready(OpState& state, Coverage& coverage);

}  // namespace kiln::engine
