// Whether the kernels that passes name are in the sources, without a compiler.
#pragma once

#include "check/finding.hpp"
#include "check/lines.hpp"

namespace kiln::check {

/// Names each kernel that no source of its implementation, of the reference or of [prepare] defines.
void check_kernels(const manifest::Op& op, const Lines& lines, Findings& findings);

}  // namespace kiln::check
