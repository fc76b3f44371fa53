// What a name is to an op, for messages about one that a problem does not have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "manifest/op.hpp"

namespace kiln::manifest {

/// The names that a problem of the op gives values: of axes, types and choices.
std::vector<std::string> names_of_problem(const Op& op);

/// Says of a name that is none of these what it is to the op, and which they are: "'epsilon' is a run-time value, ...,
/// expected 'rows' or 'dtype'".
std::string why_unknown(const Op& op, std::string_view name);

}  // namespace kiln::manifest
