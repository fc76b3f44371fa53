// What happens where a plan cannot serve, or is not there. What it refuses, by its sizes, its addresses or a length in device memory, goes to
// the bucket's next answers, in the resolver's order. On a stream that captures a graph nothing is tuned, compiled, loaded, allocated or waited
// for: what is loaded stands in, or the call is refused; either way the capture goes on.
#pragma once

#include <string_view>
#include <vector>

#include "engine/op_state.hpp"

namespace kiln::engine {

/// Of a bucket that is not hot: makes it ready, or on a capturing stream lets another bucket's plan stand in.
Origin launch_missed(OpState& state, const Problem& problem, const Arguments& arguments, CUstream stream);
/// The plan for a launch with lengths on the device, once those are looked at: a library takes none.
[[nodiscard]] const PlanState& plan_with_lengths(OpState& state, const PlanState& plan, const Problem& problem,
                                                 const Arguments& arguments, CUstream stream);
/// What the plan refused. Throws Error(bad_input) with each answer's reason where none serves.
Origin launch_next(OpState& state, const PlanState& refused, const Problem& problem, const Arguments& arguments,
                   CUstream stream);
/// On a capturing stream: another plan that is loaded, or Error(capture) with what is missing.
Origin launch_stand_in(OpState& state, const Problem& problem, const Arguments& arguments, CUstream stream,
                       std::string_view missing);
/// Maps a failed launch's CUresult to kiln::Error, and throws it.
[[noreturn]] void refuse(const OpState& state, const PlanState& plan, CUresult result, CUstream stream);

/// Loaded plans that may serve the problem on this stream, the nearest bucket's first.
[[nodiscard]] std::vector<const PlanState*> stand_ins(OpState& state, const Problem& problem, CUstream stream);
/// The origin that a launch of the problem by a stand-in counts as.
[[nodiscard]] Origin origin_of(const OpState& state, const PlanState& stand_in, const Problem& problem) noexcept;

}  // namespace kiln::engine
