// Tests that this machine or this user cannot run.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "faults/tally.hpp"

namespace kiln::faults {

inline int skipped = 0;

/// The number that the name of a row's file begins with.
inline std::string row_of(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return std::string(name.substr(0, name.find('_')));
}

/// Says why a test case cannot run here, to the tally too. The executable then exits with 77, which ctest counts as skipped.
inline void skip(std::string_view why) {
  ++skipped;
  const std::string row = row_of(doctest::getContextOptions()->currentTest->m_file.c_str());
  append_to_tally(row + "\tskipped\t" + std::string(why) + '\n');
  std::printf("skipped: %.*s\n", static_cast<int>(why.size()), why.data());
}

/// What main returns, given what doctest's run() did.
inline int exit_status(int status) {
  constexpr int counts_as_skipped = 77;
  return status == 0 && skipped > 0 ? counts_as_skipped : status;
}

}  // namespace kiln::faults
