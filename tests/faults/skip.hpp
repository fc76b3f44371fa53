// Tests that this machine or this user cannot run.
#pragma once

#include <cstdio>
#include <string_view>

namespace kiln::faults {

inline int skipped = 0;

/// Says why a test case cannot run here. The executable then exits with 77, which ctest counts as skipped.
inline void skip(std::string_view why) {
  ++skipped;
  std::printf("skipped: %.*s\n", static_cast<int>(why.size()), why.data());
}

/// What main returns, given what doctest's run() did.
inline int exit_status(int status) {
  constexpr int counts_as_skipped = 77;
  return status == 0 && skipped > 0 ? counts_as_skipped : status;
}

}  // namespace kiln::faults
