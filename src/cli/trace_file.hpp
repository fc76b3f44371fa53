// Reads a trace: one problem a line, in order; '#' begins a comment. A size may be 0, as that of a batch without
// tokens.
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

/// Throws Error(bad_input) "NAME:LINE: ..." for a line that is not a problem.
std::vector<TraceEntry> parse_trace(std::istream& text, const std::string& name, const manifest::Catalogue& ops);
/// Reads the file, or with "-" the standard input. Throws as parse_trace does, and Error(io).
std::vector<TraceEntry> read_trace(const std::string& path, const manifest::Catalogue& ops);

}  // namespace kiln::cli
