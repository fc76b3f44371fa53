// What names of a manifest may be, and what a name is that somebody gave.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "manifest/op.hpp"

namespace kiln::manifest {

/// What is_identifier() asks, for messages: "a letter or underscore, then ..."
std::string name_rule();

/// The names that a problem of the op gives values: of axes, types and choices.
std::vector<std::string> names_of_problem(const Op& op);

/// Says of a name that is none of these what it is to the op, and which they are: "'epsilon' is a run-time value, ...,
/// expected 'rows' or 'dtype'".
std::string why_unknown(const Op& op, std::string_view name);

}  // namespace kiln::manifest
