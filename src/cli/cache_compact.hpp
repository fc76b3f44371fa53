// Compacting, for the commands that take rows away.
#pragma once

#include <cstdint>

#include "store/file.hpp"

namespace kiln::cli {

struct Compacted {
  std::int64_t before = 0, after = 0;  // bytes of the file
};
Compacted compact(store::File& file);

}  // namespace kiln::cli
