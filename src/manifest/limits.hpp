// Bounds on texts that a user gives, checked before or right after a parser, whose stack, time or memory a text could
// exhaust; and on the ranks of a team.
#pragma once

#include <cstddef>

namespace kiln::manifest {

inline constexpr std::size_t max_toml_bytes = std::size_t{512} << 10;   // of a manifest or a workload
inline constexpr std::size_t max_key_parts = 8;                         // of a TOML key; a.b.c has three
inline constexpr std::size_t max_toml_nesting = 16;                     // of lists and inline tables
inline constexpr std::size_t max_toml_entries = 4096;                   // of one list or table
inline constexpr int max_terms = 256;                                   // of an implementation
inline constexpr std::size_t max_parts = 16;                            // that a manifest includes
inline constexpr std::size_t max_source_bytes = std::size_t{16} << 20;  // of a CUDA source
inline constexpr std::size_t max_trace_line_bytes = std::size_t{1} << 16;

inline constexpr int most_team_ranks = 64;
/// Ranks that a kernel reaches by their memory: templates/common/team/protocol.cuh has a place for each. NCCL alone
/// serves an op of more, between ranks that met at an address.
inline constexpr int most_kernel_ranks = 8;

}  // namespace kiln::manifest
