// Bounds on what is written and on what is believed when read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln::store {

inline constexpr std::int64_t max_image_bytes = std::int64_t{64} << 20;  // of a cubin, uncompressed
inline constexpr std::size_t max_names_bytes = std::size_t{2} << 20;     // of a cubin's function names, as JSON
inline constexpr std::size_t max_choices = 4096;                         // of a record
inline constexpr int max_row_bytes = 72 << 20;  // an incompressible image and the row's other columns

inline constexpr std::size_t max_line_bytes = max_choices * 4096;  // of a record as text: 4 KiB for each choice
inline constexpr std::size_t max_fields = 64;                      // of an object there
inline constexpr std::size_t max_values = std::size_t{1} << 20;    // of a line of JSON in all

}  // namespace kiln::store
