// Whether the kernels that passes name are in the sources, without a compiler.
#pragma once

#include "check/finding.hpp"
#include "check/lines.hpp"

namespace kiln::check {

/// Takes "FILE(LINE): what; what to do", as what a compile says of a source that it does not read, apart. A text of
/// another form is the finding's at `file` and `line`.
Finding source_finding(std::string_view text, const std::string& file, const manifest::Line& line);

/// Names each kernel that no source of its implementation, of the reference or of [prepare] defines.
/// Where the op `is_whole`, names also each source that none of them includes.
void check_kernels(const manifest::Op& op, const Lines& lines, bool is_whole, Findings& findings);

}  // namespace kiln::check
