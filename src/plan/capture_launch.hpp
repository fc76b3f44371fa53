// Launches on a capturing stream of what is not ready. Nothing is tuned, compiled or loaded there: a loaded plan of
// this bucket or of another serves, or the call throws Error(capture). The capture goes on.
#pragma once

#include <string_view>
#include <vector>

#include "plan/op_state.hpp"
#include "plan/owner.hpp"

namespace kiln::plan {

/// Launches the nearest loaded plan that takes the call. Throws Error(capture) with `missing` where none does.
Origin launch_in_capture(OpState& op_state, const Call& call, std::string_view missing);

/// Whether the stream captures. Throws Error(capture) for the legacy stream where a launch on it would end another
/// stream's capture, and Error(bad_input) for another device's stream.
[[nodiscard]] bool captures(const OpState& op_state, CUstream stream);

/// Whether a plan of `a` may run for `b`: selections and exact sizes, which machine code and folded expressions depend
/// on, are equal.
[[nodiscard]] bool fixed_alike(const manifest::Op& op, const Problem& a, const Problem& b);
/// Loaded plans of all buckets that may serve the problem, the nearest bucket's first.
[[nodiscard]] std::vector<const PlanState*> loaded_fallbacks(OpState& op_state, const Problem& problem);
/// The origin that a launch of the problem by this plan counts as: the plan's own in its bucket, else Origin::nearest.
[[nodiscard]] Origin origin_of(const OpState& op_state, const PlanState& fallback, const Problem& problem);

}  // namespace kiln::plan
