// Values in op.toml that hide what is wrong: the cost, and what a tune verifies with.
#pragma once

#include "check/finding.hpp"
#include "check/lines.hpp"
#include "check/trials.hpp"

namespace kiln::check {

/// Names a [cost] that is missing, or so small that it must be in other units than bytes.
void check_cost(const manifest::Op& op, const Lines& lines, const Target& target, Findings& findings);

/// Names reals that a tune verifies with a value that hides whether kernels use them.
void check_verified(const manifest::Op& op, const Lines& lines, const Target& target, Findings& findings);

}  // namespace kiln::check
