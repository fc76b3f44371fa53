// Ops and problems on the command line: "rms_norm rows=1..16384 cols=4096,8192 dtype=bf16".
//
//   argument := name '=' item (',' item)*
//   item     := integer | integer '..' integer | word
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/session.hpp"
#include "manifest/problem_set.hpp"

namespace kiln::cli {

using manifest::buckets_of;
using manifest::ProblemSet;
using Range = manifest::SizeRange;

/// Throws Error(bad_input) when no op of `ops` has this name: with the nearest name, all names, and how an op of the
/// user's own is found. `what`: what the name may be of. Throws Error(bad_manifest) for an op that was refused.
const manifest::Op& find_op(const manifest::Catalogue& ops, std::string_view name, std::string_view what = "op");

/// Splits "name=value". Throws Error(bad_input) for a word of another form.
manifest::Setting parse_setting(const std::string& word);
std::vector<manifest::Setting> parse_settings(std::span<const std::string> words);

/// Throws Error(bad_input) for a word that does not parse, an unknown or repeated name, a missing axis, and a size that
/// is not legal. A selection that is left out takes its default. `world`: the ranks that the command runs on, which the
/// axis of a team is, given or not; 0: none.
ProblemSet parse_problem_set(const manifest::Op& op, std::span<const std::string> words, int world = 0);

/// Parses one problem. Throws Error(bad_input) as manifest::make_problem does, and for ranges and lists.
Problem parse_problem(const manifest::Op& op, std::span<const std::string> words,
                      manifest::Zeros zeros = manifest::Zeros::refused);

/// Returns the display text of a stored problem or bucket, or the stored text when no op of `ops` has such a problem.
std::string display_stored(const manifest::Catalogue& ops, std::string_view op, std::string_view stored);

/// Makes a sample problem of the op. Axes that are not given take a usual size by their name (32 heads, 8 ranks), else
/// 4096, or the nearest legal size.
Problem sample_problem(const manifest::Op& op, std::span<const std::string> words);

}  // namespace kiln::cli
