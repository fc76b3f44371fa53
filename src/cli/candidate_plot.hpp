// A record's candidates as bars.
#pragma once

#include <span>
#include <string>

#include "store/record.hpp"

namespace kiln::cli {

/// One line for each candidate that was timed at the bucket's upper edge, the fastest first, in at most `width` columns. A line holds
/// the config, a bar up to its 95 % interval and, as '=', over it, its time, and whether it serves there or is the default. Bars of
/// more than five times the fastest are cut off. Of many candidates the middle is folded into "... 37 more". Empty when there are
/// fewer than two.
std::string plot(const store::Record& record, std::size_t width);

}  // namespace kiln::cli
