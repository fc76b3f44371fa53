// Options for how long and how thoroughly a command searches.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "kiln/options.hpp"

namespace kiln::cli {

struct SearchChoice {
  std::string strategy = "racing";
  std::int64_t trials = 0;
  double seconds = 0;
  std::uint64_t seed = 1;
};

void declare_search(CLI::App& command, SearchChoice& choice);
SearchSettings search_settings(const SearchChoice& choice);

}  // namespace kiln::cli
