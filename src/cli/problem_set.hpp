// "rows=1..16384 cols=4096,8192 dtype=bf16": the problems that a person names, and the buckets that they touch.
//
//   argument := name '=' item (',' item)*
//   item     := integer | integer '..' integer | word
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spec/problem.hpp"

namespace kiln::cli {

struct Range {
  std::int64_t low = 0, high = 0;  // both included
  bool operator==(const Range&) const = default;
};

struct ProblemSet {
  std::vector<std::vector<Range>> axes;  // one an axis of the op
  std::vector<std::vector<std::uint8_t>>
      selections;  // one a type or choice: indices of its values; none for its default
};

/// "name=value" as its two halves. Throws Error(bad_input) for a word of another form.
spec::Setting parse_setting(const std::string& word);
std::vector<spec::Setting> parse_settings(std::span<const std::string> words);

/// Throws Error(bad_input) for a word that does not parse, a name that the op lacks or that comes twice, an axis that is missing,
/// and a size that the axis does not have. A selection that is left out takes its default.
ProblemSet parse_problem_set(const spec::Op& op, std::span<const std::string> words);

/// The distinct buckets, in rising order of the op's axes. Throws Error(bad_input) when there are more than `most`.
std::vector<Problem> buckets_of(const spec::Op& op, const ProblemSet& set, std::size_t most = 10000);

/// One problem. Throws Error(bad_input) as spec::make_problem does, and for ranges and lists.
Problem parse_problem(const spec::Op& op, std::span<const std::string> words);

/// One problem to show an op by: axes that are not given take 4096, or the nearest legal size.
Problem sample_problem(const spec::Op& op, std::span<const std::string> words);

}  // namespace kiln::cli
