// What an expression means, computed as it is read: no tree, no folding, no program, and 128 bits, so that nothing is
// shared with what it checks but the grammar in manifest/expression.hpp.
#pragma once

#include <span>
#include <string_view>

#include "manifest/expression.hpp"

namespace kiln::fuzz {

/// The value of a text that Expression::parse took. Ends the process at one that the grammar does not have.
manifest::Value oracle(std::string_view text, const manifest::Symbols& symbols, std::span<const std::int64_t> frame);

}  // namespace kiln::fuzz
