// What is declared and has no effect: names that nothing uses, and tensors that no pass takes; and names that stand
// where they mean nothing.
#pragma once

#include <span>

#include "check/finding.hpp"
#include "check/lines.hpp"
#include "check/trials.hpp"

namespace kiln::check {

/// Names parameters, terms and workspaces that the implementation never uses, and parameters that no launch depends on.
void check_names(const manifest::Implementation& implementation, const Lines& lines, Findings& findings);
/// Names axes, run-time values, types and choices that neither op.toml nor an implementation uses.
void check_names(const manifest::Op& op, const Lines& lines, Findings& findings);
/// Names comparisons of a type or choice with a number.
void check_comparisons(const manifest::Op& op, const Lines& lines, Findings& findings);

/// Names tensors that take part in a trial and that no pass is given there.
void check_tensors(const manifest::Op& op, const manifest::Implementation& implementation, const Lines& lines,
                   const Target& target, const Trials& trials, Findings& findings);

/// Names tensors that take part in a problem and that no pass of the reference is given there.
void check_reference_tensors(const manifest::Op& op, const Lines& lines, const Target& target, Findings& findings);

}  // namespace kiln::check
