// A record's candidates as bars.
#pragma once

#include <span>
#include <string>

#include "store/record.hpp"

namespace kiln::cli {

/// One line for each candidate that was timed, the fastest first, in at most `width` columns: its config, a bar up to its 95 %
/// interval and, as '=', over it, its time, and whether it won or is the default. Bars of more than five times the fastest are cut
/// off. Of many candidates the middle is folded into "... 37 more". Empty when there are fewer than two.
std::string plot(const store::Record& record, std::size_t width);

}  // namespace kiln::cli
