// Run-time values on the command line: "epsilon=1e-5 x_row_stride=8192".
#pragma once

#include <string>
#include <vector>

#include "manifest/op.hpp"
#include "tune/verification_case.hpp"

namespace kiln::cli {

/// Removes the words that name run-time values of the op from `words`. Throws Error(bad_input) for a value that is not
/// a number of its type or comes twice. The launch checks minimums.
tune::Placement take_runtime_values(const manifest::Op& op, std::vector<std::string>& words);

}  // namespace kiln::cli
