// What a program was built from. cmake/WriteBuild.cmake writes the source.
#pragma once

#include <string_view>

namespace kiln {

/// The commit in short, with "-dirty" where tracked files differed from it; outside of a git checkout what CMake's
/// KILN_BUILD says, else "unknown".
std::string_view build() noexcept;

}  // namespace kiln
