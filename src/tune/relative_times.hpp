// How the candidates of a comparison stand against its fastest. Pure.
#pragma once

#include <functional>
#include <vector>

#include "answer/portfolio.hpp"
#include "tune/search.hpp"

namespace kiln::tune {

/// Returns the relative time of each candidate with samples. `footprint_of` is called for compared candidates only.
std::vector<answer::RelativeTime> relative_times(const Comparison& comparison,
                                                 const std::function<Footprint(std::size_t candidate)>& footprint_of);

}  // namespace kiln::tune
