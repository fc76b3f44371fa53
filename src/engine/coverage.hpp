// Engine::prepare and Engine::coverage.
#pragma once

#include <span>

#include "plan/op_state.hpp"

namespace kiln::engine {

/// Engine::prepare. Throws Error(capture) on a capturing stream, and Error(interrupted); another failure becomes a gap.
Coverage prepare_all(plan::OpState& op_state, std::span<const Problem> problems, CUstream stream);
/// Engine::coverage of some problems.
Coverage cover(plan::OpState& op_state, std::span<const Problem> problems, CUstream stream);
/// Engine::coverage of the hot buckets: adds those of this op.
void cover_ready(plan::OpState& op_state, Coverage& coverage);

}  // namespace kiln::engine
