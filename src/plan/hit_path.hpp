// Problem -> bucket -> hot table -> plan -> launch. Op::launch and Plan::launch stand at the end of hit_path.cpp.
//
//   launch            finds the bucket's plan in the hot table, else Owner::launch_cold
//     launch_plan     picks the plan by size; finds the thread's frame
//       attempt       fills the frame, asks whether the plan admits it, counts
//         run         with or without a workspace
//           submit    hands the passes to the driver
//       launch_next   where the plan refuses: the bucket's next answers (refused_launch.hpp)
#pragma once

#include <optional>

#include "plan/op_state.hpp"

namespace kiln::plan {

/// Op::launch. Uses no lock, allocation, string, file or clock where the bucket is hot, its plan serves the call, and
/// the stream has a workspace.
Origin launch(OpState& op_state, const Problem& problem, const Arguments& arguments, CUstream stream);
/// Op::try_launch.
std::optional<Origin> try_launch(OpState& op_state, const Problem& problem, const Arguments& arguments,
                                 CUstream stream);
/// Launches nothing for a problem with a size of 0, and counts nothing. Throws Error(bad_input) for a problem that has
/// none or is wrong otherwise, and as require_team() and require_sound_team() do.
Origin launch_nothing(const OpState& op_state, const Problem& problem);
/// Plan::launch, where `edge` is the plan of the bucket's upper edge.
Origin launch_plan(OpState& op_state, const PlanState& edge, const Problem& problem, const Arguments& arguments,
                   CUstream stream);

enum class Run : std::uint8_t {
  launched,
  refused,  // nothing was launched: the config is not legal for the sizes or addresses, or the library declined
};
struct Attempt {
  Run run;
  Origin origin;
};
/// Launches this plan or none, and counts a launch. Throws Error(bad_input) for run-time values that no plan takes, and
/// as refuse() does.
Attempt attempt(OpState& op_state, const PlanState& plan, const Problem& problem, const Arguments& arguments,
                CUstream stream);
/// Launches a filled frame that the plan admits, without counting it. `kept` is the thread's call that owns the frame,
/// or null.
[[nodiscard]] Run run(OpState& op_state, const PlanState& plan, jit::CallFrame& frame, const Arguments& arguments,
                      CUstream stream, jit::ThreadCall* kept = nullptr);
/// Counts what run() launched.
void count(OpState& op_state, const PlanState& plan, const Problem& problem, Origin origin) noexcept;

}  // namespace kiln::plan
