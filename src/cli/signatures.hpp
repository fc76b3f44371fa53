// Notes about signatures that a written file has no more.
#pragma once

#include <cstddef>
#include <string>

#include "cli/session.hpp"

namespace kiln::cli {

/// Returns the number of signatures of a file; 0 for text, and for a file that is missing or cannot be read.
std::size_t signatures_of(const std::string& path);

/// Notes the loss of what `path` had before it was written, or of what its inputs had. Silent when `lost` is 0.
void say_unsigned(const Globals& globals, const std::string& path, std::size_t lost);

}  // namespace kiln::cli
