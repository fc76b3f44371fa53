// What the parts of kiln bench share.
#pragma once

#include "cli/commands.hpp"

namespace kiln::cli {

void add_bench_records(CLI::App& bench, Chosen& chosen);
void add_bench_regret(CLI::App& bench, Chosen& chosen);

}  // namespace kiln::cli
