// How a person sorts names that hold numbers.
#pragma once

#include <string_view>

namespace kiln::cli {

/// Numbers by their value: rows=2 before rows=16.
bool reads_before(std::string_view a, std::string_view b);

}  // namespace kiln::cli
