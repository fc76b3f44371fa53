// What is made before the first request: tuned files, and the team of this process's ranks.
#pragma once

#include "python.hpp"

namespace kiln_python {

/// Adds Tuner, team_name, join_team, reset_team and close_team.
void add_ahead(nb::module_& module);

}  // namespace kiln_python
