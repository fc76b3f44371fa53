// kiln_options as kiln::Options.
#pragma once

#include "kiln/kiln.h"
#include "kiln/options.hpp"

namespace kiln::c {

/// Throws Error(bad_input) for a number that stands for nothing.
Options options_of(const kiln_options& given);
/// Writes the defaults.
void write_defaults(kiln_options& options) noexcept;

}  // namespace kiln::c
