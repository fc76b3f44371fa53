// Every plan of a large file made ready in a fresh process: how long, and how much memory.
#pragma once

#include <cstdint>
#include <filesystem>

#include "kiln/options.hpp"

namespace kiln::bench {

/// Prints one line of numbers by name, as stages are printed.
void run_plans(const std::filesystem::path& base, std::size_t count, Loading loading);

}  // namespace kiln::bench
