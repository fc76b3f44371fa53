// The ops that this run of the command can see.
#pragma once

#include <span>
#include <string_view>

#include "manifest/op.hpp"

namespace kiln::cli {

/// Throws Error(bad_input) naming the nearest op, or all of them.
const manifest::Op& find_op(std::span<const manifest::Op> ops, std::string_view name);

}  // namespace kiln::cli
