// What is said of one record in several parts of the page.
#pragma once

#include <string>

#include "cli/report/content.hpp"

namespace kiln::cli::report {

std::string time_of(double ns);      // "12.35 µs"
std::string ratio_of(double ratio);  // "1.24×"; "–" for 0

/// How many times the default's time that of the upper edge's config is under; 0 where there is no baseline.
double gain_of(const store::Record& record);
/// The config at the upper edge, and how many others serve below it: "block_row threads=256 and 2 more", clipped.
std::string winner_of(const store::Record& record);
/// "rows=512: 12.35 us, default 14.02 us (1.14x) · block_row threads=256".
std::string words_of(const TimedSizes& timed, std::string_view where);
std::string date_of(std::int64_t unix_seconds);
std::string_view to_string(engine::Standing standing) noexcept;

}  // namespace kiln::cli::report
