// Compiles an op's kernels to see whether they compile. Needs NVRTC, but no device and no files.
#pragma once

#include "cli/session.hpp"
#include "cli/target.hpp"

namespace kiln::cli {

/// Compiles the default of each implementation that is legal there, and the reference. Prints what became of each;
/// returns the exit status. Throws Error(no_nvrtc).
int check_compiles(const Globals& globals, const manifest::Op& op, const Problem& problem, const Target& target);

}  // namespace kiln::cli
