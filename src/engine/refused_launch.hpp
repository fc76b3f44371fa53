// Launches whose bucket has no plan in memory, and launches that their plan refuses. The first begin the miss path, at launch_missed. A plan
// refuses a call for its sizes, its addresses or a length in device memory. The call then goes to the bucket's next answers, in the resolver's
// order. On a capturing stream nothing is tuned, compiled, loaded, allocated on the device or waited for. There a loaded plan of this bucket or
// of another serves, or the call throws Error(capture); the capture goes on.
#pragma once

#include <string_view>
#include <vector>

#include "engine/op_state.hpp"

namespace kiln::engine {

/// The entry of the miss path. Launches a problem whose bucket is not hot: makes it ready, or on a capturing stream uses launch_fallback().
Origin launch_missed(OpState& state, const Problem& problem, const Arguments& arguments, CUstream stream);
/// Returns the plan for a launch with lengths on the device, which no library takes. Throws Error(bad_input) for an axis that may not have one
/// and for an address of no int32.
[[nodiscard]] const PlanState& plan_with_lengths(OpState& state, const PlanState& plan, const Problem& problem,
                                                 const Arguments& arguments, CUstream stream);
/// Launches what `refused` declined, by the bucket's later answers. Throws Error(bad_input) with each answer's reason where none serves.
Origin launch_next(OpState& state, const PlanState& refused, const Problem& problem, const Arguments& arguments,
                   CUstream stream);
/// On a capturing stream, launches the nearest loaded plan that takes the call. Throws Error(capture) with `missing` where none does.
Origin launch_fallback(OpState& state, const Problem& problem, const Arguments& arguments, CUstream stream,
                       std::string_view missing);
/// Maps a failed launch's CUresult to kiln::Error, and throws it.
[[noreturn]] void refuse(const OpState& state, const PlanState& plan, CUresult result, CUstream stream);

/// Loaded plans of all buckets that may serve the problem on this stream, the nearest bucket's first.
[[nodiscard]] std::vector<const PlanState*> loaded_fallbacks(OpState& state, const Problem& problem, CUstream stream);
/// The origin that a launch of the problem by this plan counts as: the plan's own in its bucket, else Origin::nearest.
[[nodiscard]] Origin origin_of(const OpState& state, const PlanState& fallback, const Problem& problem) noexcept;

}  // namespace kiln::engine
