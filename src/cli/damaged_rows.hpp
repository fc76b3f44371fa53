// Rows that fail their checks are absent to each look-up. Commands that show what files hold say so.
#pragma once

#include <cstdint>

#include "cli/session.hpp"
#include "store/layers.hpp"

namespace kiln::cli {

/// Returns how many records of a file do not hold. Where all do, how many look-ups met another row that does not: 0
/// where this process met none.
std::int64_t damaged_rows(store::File& file);
std::int64_t damaged_rows(const store::Layers& layers);

/// Note that many of a file, and what names them.
void say_damaged(const Globals& globals, store::File& file);
void say_damaged(const Globals& globals, const store::Layers& layers);

}  // namespace kiln::cli
