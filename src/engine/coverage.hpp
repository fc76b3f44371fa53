// Engine::prepare and Engine::coverage.
#pragma once

#include <span>

#include "engine/op_state.hpp"

namespace kiln::engine {

/// Engine::prepare. Throws Error(capture) on a capturing stream, and Error(interrupted); another failure becomes a gap.
Coverage prepare_all(OpState& state, std::span<const Problem> problems, CUstream stream);
/// Engine::coverage of some problems.
Coverage cover(OpState& state, std::span<const Problem> problems, CUstream stream);
/// Engine::coverage of the hot buckets: adds those of this op.
void cover_ready(OpState& state, Coverage& coverage);

}  // namespace kiln::engine
