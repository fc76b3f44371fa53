// Limits on rows, checked when they are written and when they are read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln::store {

inline constexpr std::int64_t max_image_bytes = std::int64_t{64} << 20;  // an uncompressed cubin
inline constexpr std::size_t max_names_bytes = std::size_t{2} << 20;     // a cubin's function names as JSON
inline constexpr std::size_t max_choices = 4096;                         // in a record
inline constexpr int max_row_bytes = 72 << 20;  // an incompressible image and the row's other columns

inline constexpr std::size_t max_line_bytes = max_choices * 4096;  // a record as JSON: 4 KiB for each choice
inline constexpr std::size_t max_fields = 64;                      // in a JSON object
inline constexpr std::size_t max_values = std::size_t{1} << 20;    // in a line of JSON

}  // namespace kiln::store
