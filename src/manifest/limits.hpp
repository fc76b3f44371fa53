// Bounds on texts that a user gives. They are checked before or right after a parser, whose stack, time or memory a text could exhaust.
#pragma once

#include <cstddef>

namespace kiln::manifest {

inline constexpr std::size_t max_toml_bytes = std::size_t{512} << 10;   // of a manifest or a workload
inline constexpr std::size_t max_key_parts = 8;                         // of a TOML key; a.b.c has three
inline constexpr std::size_t max_toml_nesting = 16;                     // of lists and inline tables
inline constexpr std::size_t max_toml_entries = 4096;                   // of one list or table
inline constexpr int max_terms = 256;                                   // of an implementation
inline constexpr std::size_t max_source_bytes = std::size_t{16} << 20;  // of a CUDA source
inline constexpr std::size_t max_trace_line_bytes = std::size_t{1} << 16;

}  // namespace kiln::manifest
