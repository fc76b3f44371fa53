// Every expression of an op, with its line and the values that a launch takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "check/lines.hpp"
#include "manifest/op.hpp"

namespace kiln::check {

struct Place {
  std::string kind;  // of a finding here
  std::string what;  // "the grid's y"
  manifest::Line line;
  manifest::Expression expression;
  std::optional<manifest::Expression> when{};  // 0: it is not evaluated
  manifest::Range limits{};
  std::string remedy{};  // for a value outside the limits
  bool is_of_pass = false;
  bool may_exceed = false;  // at the ends of sizes, where a launch is refused and another answer serves
};

inline constexpr std::int64_t most_cluster = 8;  // blocks that every device with clusters takes

struct Places {
  std::string file;  // as messages show it
  std::vector<Place> places;
};

/// Expressions of an implementation's passes, workspaces and alignments.
Places places_of(const manifest::Op& op, const manifest::Implementation& implementation, const Lines& lines);
/// Expressions of op.toml: tensors, run-time values, cost, the reference.
Places places_of(const manifest::Op& op, const Lines& lines);
/// Expressions of [prepare], over its own frame.
Places places_of_prepare(const manifest::Op& op, const Lines& lines);

}  // namespace kiln::check
