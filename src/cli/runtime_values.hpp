// Run-time values on the command line: "epsilon=1e-5 x_row_stride=8192".
#pragma once

#include <string>
#include <vector>

#include "manifest/op.hpp"
#include "tune/verification_case.hpp"

namespace kiln::cli {

/// Takes the words that name a run-time value of the op out of `words`. Throws Error(bad_input) for one that is no number of its type
/// or comes twice. Whether a value is at or above its minimum is for the launch to say.
tune::Placement take_runtime_values(const manifest::Op& op, std::vector<std::string>& words);

}  // namespace kiln::cli
