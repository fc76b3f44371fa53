// Draws a record's candidates as bars.
#pragma once

#include <span>
#include <string>

#include "store/record.hpp"

namespace kiln::cli {

/// Returns a line of at most `width` columns for each candidate that was timed at the bucket's upper edge, the fastest
/// first: config, bar ('=' is the 95 % interval), time, and whether it serves there or is the default. Bars longer than
/// five times the fastest are cut off. Of many candidates the middle is replaced by "... 37 more". Empty for fewer than
/// two.
std::string plot(const store::Record& record, std::size_t width);

}  // namespace kiln::cli
