// Problem -> bucket -> hot table -> plan -> launch.
#pragma once

#include "engine/op_state.hpp"

namespace kiln::engine {

/// No lock, no allocation, no string, no file, no clock where the bucket is hot and its plan serves; else as miss_path.hpp and fallback.hpp say.
Origin launch(OpState& state, const Problem& problem, const Arguments& arguments, CUstream stream);
/// The same of a bucket whose plan for the upper edge is known.
Origin launch_plan(OpState& state, const PlanState& edge, const Problem& problem, const Arguments& arguments,
                   CUstream stream);

enum class Run : std::uint8_t {
  launched,
  no_workspace,  // for this stream, which is capturing; nothing is launched
  refused,       // at these sizes or addresses, or by a library; nothing is launched
};
struct Attempt {
  Run run;
  Origin origin;
};
/// One plan, and no other in its place; counted if it is launched. Throws Error(bad_input) for a call that no plan takes.
Attempt attempt(OpState& state, const PlanState& plan, const Problem& problem, const Arguments& arguments,
                CUstream stream);
/// That of a filled frame which the plan admits, not counted. `kept` is the call that the frame is of, if it is of one.
[[nodiscard]] Run run(OpState& state, const PlanState& plan, jit::CallFrame& frame, const Arguments& arguments,
                      CUstream stream, jit::ThreadCall* kept = nullptr);
/// Of what `run` launched.
void count(OpState& state, const PlanState& plan, const Problem& problem, Origin origin) noexcept;

}  // namespace kiln::engine
