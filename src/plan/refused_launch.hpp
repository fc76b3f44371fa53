// Launches in a bucket with plans that a hit cannot serve: the plan of the sizes is not made yet, or refuses them, the
// addresses or a length in device memory. Such a call goes to the bucket's next answers, in the resolver's order.
#pragma once

#include <optional>

#include "plan/op_state.hpp"
#include "plan/owner.hpp"

namespace kiln::plan {

/// Makes the plan of the problem's sizes, and launches it. On a capturing stream uses launch_in_capture() instead.
/// `edge` is what the hot table holds.
Origin launch_unmade(OpState& op_state, const PlanState& edge, const Call& call);
/// Launches what `refused` declined, by the bucket's later answers. On a capturing stream where one is not ready, uses
/// launch_in_capture(). Throws Error(bad_input) with each answer's reason where none serves.
Origin launch_next(OpState& op_state, const PlanState& refused, const Call& call);
/// Launches by a plan of the bucket that is loaded, as launch_next() would; `first` is the plan by size. Nothing: an
/// answer before one that serves is not loaded. Throws as launch_next() does.
std::optional<Origin> launch_loaded(OpState& op_state, const PlanState& first, const Call& call);
/// Returns the plan for a launch with lengths on the device, which no library takes. Throws as check_lengths() does.
[[nodiscard]] const PlanState& plan_with_lengths(OpState& op_state, const PlanState& plan, const Call& call);

/// Throws Error(bad_input) for a length on the device of an axis that may not have one, and for an address of no int32.
void check_lengths(const OpState& op_state, const Arguments& arguments);
/// Throws Error(bad_input) for a null address of a tensor that takes part and is not optional.
void require_tensors(const OpState& op_state, const Problem& problem, const Arguments& arguments);
/// Maps a failed launch's CUresult to kiln::Error, and throws it.
[[noreturn]] void refuse(const OpState& op_state, const PlanState& plan, CUresult result, CUstream stream);

}  // namespace kiln::plan
