// Which of an op's sources include which.
#pragma once

#include "check/finding.hpp"
#include "manifest/op.hpp"

namespace kiln::check {

/// Names each include that leads back to the file that holds it: what stands below it is then used before it is
/// declared.
void check_include_cycles(const manifest::Op& op, Findings& findings);

}  // namespace kiln::check
