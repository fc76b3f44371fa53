// Tests that this machine or this user cannot run.
#pragma once

#include <string_view>

namespace kiln::faults {

/// Says why a test case cannot run here. The executable then exits with 77, which ctest counts as skipped.
void skip(std::string_view why);

}  // namespace kiln::faults
