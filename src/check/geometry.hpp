// What a launch would be at the problems and configs of a check: every expression has a value, and the driver takes it.
#pragma once

#include "check/finding.hpp"
#include "check/lines.hpp"
#include "check/trials.hpp"

namespace kiln::check {

/// An implementation with what it is checked with on one target.
struct Subject {
  const manifest::Op& op;
  const manifest::Implementation& implementation;
  const Lines& lines;
  const Target& target;
  const Trials& trials;
};

/// Evaluates every expression of the implementation, and checks blocks, clusters and dynamic shared memory.
void check_geometry(const Subject& subject, Findings& findings);
/// Evaluates the expressions of op.toml at usual sizes. Returns false when a default has no value, so that nothing else
/// can be evaluated.
bool check_op_expressions(const manifest::Op& op, const Lines& lines, const Target& target, Findings& findings);

/// What to do about an expression without a value.
std::string advice_for(manifest::Status status);

/// The product of a pass's block, or 0 where it has no value.
std::int64_t threads_of(const manifest::Pass& pass, std::span<const std::int64_t> frame);
inline constexpr std::int64_t most_threads = 1024;

}  // namespace kiln::check
