// A problem of an op, its text, and its bucket's sizes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/arguments.hpp"
#include "kiln/problem.hpp"
#include "manifest/op.hpp"

namespace kiln::manifest {

/// Values for all axes and selections of an op. A bucket is a Problem whose axes hold upper edges.
using kiln::Problem;

/// One "name=value" of a problem as a person writes it: "rows=512", "dtype=bf16".
struct Setting {
  std::string name;
  std::string value;
};

/// Whether an axis may be 0. A launch of such a problem does nothing; no bucket, record or tune has one. The axis of a
/// team is never 0.
enum class Zeros : bool { refused, taken };

/// Throws Error(bad_input) naming the axis or selection: unknown, repeated, missing, not a number, under its minimum,
/// past its maximum, not a multiple, not one of its values, or against a rule of [op]. A selection that is left out
/// takes its default, which is its first value unless the manifest says otherwise.
Problem make_problem(const Op& op, std::span<const Setting> settings, Zeros zeros = Zeros::refused);
/// The size of an axis that nothing has given yet. check_problem refuses it, so that a launch before Op::bind does not
/// pass for one of an empty batch.
constexpr std::int64_t unbound = std::numeric_limits<std::int64_t>::min();
/// Makes each axis `unbound` but those of the mask.
void forget_sizes(const Op& op, Problem& problem, std::uint32_t but) noexcept;
/// Settings of some axes and selections. Other axes are `unbound`, other selections at their defaults. Bit i of the
/// masks: axis i, or selection i, was given.
struct PartOfProblem {
  Problem problem;
  std::uint32_t axes = 0, selections = 0;
};
/// Throws as make_problem does, but not for axes that are missing, nor for rules. Takes zeros.
PartOfProblem make_part(const Op& op, std::span<const Setting> settings);
/// Throws Error(bad_input) as make_problem does, for a Problem made elsewhere. Problem{} is not one of an empty batch.
void check_problem(const Op& op, const Problem& problem, Zeros zeros = Zeros::refused);
/// Throws Error(bad_input) for a problem, or for arguments, that another op made, and for the size of an axis that the
/// op has not.
void check_own(const Op& op, const Problem& problem);
void check_own(const Op& op, const Arguments& arguments);
/// Whether an axis is 0, other than that of a team. Where check_problem takes zeros and passes, a launch then does
/// nothing.
bool is_empty(const Op& op, const Problem& problem) noexcept;
/// The part of check_problem that types and choices decide: Error(bad_input) with the first rule of [op] that they
/// break.
void check_allowed(const Op& op, const Problem& problem);
bool is_allowed(const Op& op, const Problem& problem) noexcept;
/// True when check_problem would pass. No allocation, no exception.
bool is_valid(const Op& op, const Problem& problem) noexcept;
/// The stored form, as records, traces and JSON hold it: "rows=512 cols=4096 dtype=bf16 residual=none quantise=none".
std::string to_string(const Op& op, const Problem& problem);
/// The form for people: "rows=512 cols=4096 dtype=bf16". Leaves out each choice at its default, and each type at a
/// default that the manifest declares, so that make_problem reads it as the same problem.
std::string display_text(const Op& op, const Problem& problem);
/// Reads both forms. Returns nothing when the op's axes or selections have changed since the text was stored.
std::optional<Problem> parse_bucket(const Op& op, std::string_view text);

/// Returns the bucket policy of an axis for the problem's types and choices. No allocation.
const BucketPolicy& policy_of(const Op& op, std::size_t axis, const Problem& problem) noexcept;
/// Whether each size of the axis is a bucket of its own, for the problem's types and choices.
bool is_exact(const Op& op, std::size_t axis, const Problem& problem) noexcept;
/// Returns the problem with each axis raised to its bucket's upper edge. No allocation.
Problem bucket_of(const Op& op, const Problem& problem) noexcept;
/// Returns the smallest problem of a bucket: the lowest legal size of each axis.
Problem low_corner(const Op& op, const Problem& bucket) noexcept;
/// Whether the ranks of a team may launch unlike sizes of one bucket, and so need one config. Not where the op has a
/// choice `ranks` and it is `alike`, by which the caller promises equal sizes. False for an op of one GPU.
bool sizes_may_differ_between_ranks(const Op& op, const Problem& problem) noexcept;

}  // namespace kiln::manifest
