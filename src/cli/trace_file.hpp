// A trace: problems in the order in which they came, one a line, '#' before a comment.
//
//   rms_norm rows=137 cols=4096 dtype=bf16
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "manifest/problem.hpp"

namespace kiln::cli {

struct TraceEntry {
  const manifest::Op* op = nullptr;
  Problem problem;
  int line = 0;
};

/// Throws Error(bad_input) "NAME:LINE: ..." for a line that names no problem.
std::vector<TraceEntry> parse_trace(std::istream& text, const std::string& name, std::span<const manifest::Op> ops);
/// "-" reads the standard input. Throws Error(io) as well.
std::vector<TraceEntry> read_trace(const std::string& path, std::span<const manifest::Op> ops);

}  // namespace kiln::cli
