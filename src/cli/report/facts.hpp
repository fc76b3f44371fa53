// What is said of one record in several parts of the page.
#pragma once

#include <string>

#include "cli/report/content.hpp"

namespace kiln::cli::report {

std::string time_of(double ns);      // "12.35 µs"
std::string ratio_of(double ratio);  // "1.24×"; "–" for 0

/// How many times the default's time the winner's is under; 0 where there is no baseline.
double gain_of(const store::Record& record);
/// "block_row threads=256", clipped.
std::string winner_of(const store::Record& record);
/// "rows=512 cols=4096: 12.35 us, default 14.02 us (1.14x) · block_row threads=256".
std::string words_of(const Entry& entry, std::string_view where);
std::string date_of(std::int64_t unix_seconds);
std::string_view to_string(engine::Standing standing) noexcept;

}  // namespace kiln::cli::report
