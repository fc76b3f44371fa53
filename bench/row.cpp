#include "row.hpp"

#include <fmt/format.h>

#include "cli/build.hpp"

namespace bench {

std::string row(std::string_view name) { return fmt::format(R"({{"bench":"{}","build":"{}")", name, kiln::build()); }

}  // namespace bench
