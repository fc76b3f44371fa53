// A problem of an op, its bucket, the frame over which expressions are evaluated, and the search space.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// Whether an axis may be 0. A launch of such a problem does nothing; no bucket, record or tune has one. The axis of a team is never 0.
enum class Zeros : bool { refused, taken };

/// Throws Error(bad_input) naming the axis or selection: unknown, repeated, missing, not a number, under its minimum,
/// past its maximum, not a multiple, not one of its values, or against a rule of [op]. A selection that is left out takes its default, which
/// is its first value unless the manifest says otherwise.
Problem make_problem(const Op& op, std::span<const Setting> settings, Zeros zeros = Zeros::refused);
/// Throws Error(bad_input) as make_problem does, for a Problem made elsewhere.
void check_problem(const Op& op, const Problem& problem, Zeros zeros = Zeros::refused);
/// Whether an axis is 0, other than that of a team. Where check_problem takes zeros and passes, a launch then does nothing.
bool is_empty(const Op& op, const Problem& problem) noexcept;
/// The part of check_problem that types and choices decide: Error(bad_input) with the first rule of [op] that they break.
void check_allowed(const Op& op, const Problem& problem);
bool is_allowed(const Op& op, const Problem& problem) noexcept;
/// True when check_problem would pass. No allocation, no exception.
bool is_valid(const Op& op, const Problem& problem) noexcept;
/// The stored form, as records, traces and JSON hold it: "rows=512 cols=4096 dtype=bf16 residual=none quantise=none".
std::string to_string(const Op& op, const Problem& problem);
/// The form for people: "rows=512 cols=4096 dtype=bf16". Leaves out each choice at its default, and each type at a default that the
/// manifest declares, so that make_problem reads it as the same problem.
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
/// Whether the ranks of a team may launch unlike sizes of one bucket, and so need one config. Not where the op has a choice `ranks` and it is
/// `alike`, by which the caller promises equal sizes. False for an op of one GPU.
bool sizes_may_differ_between_ranks(const Op& op, const Problem& problem) noexcept;

/// A frame for `implementation` (or for the op alone when null): axes and selections of the problem, device facts, the
/// config's parameters; run-time integers take their defaults where they have one and 0 elsewhere, reals are 0.
std::vector<std::int64_t> make_frame(const Op& op, const Implementation* implementation, const Problem& problem,
                                     const DeviceFacts& device, std::span<const std::int64_t> config = {});

/// Returns why an implementation cannot serve this problem on this device, or nothing when one of its configs can.
std::optional<std::string> why_not_eligible(const Op& op, const Implementation& implementation, const Problem& problem,
                                            const DeviceFacts& device);
/// Returns the text of the first constraint that a config breaks at this problem, or nothing.
std::optional<std::string> broken_constraint(const Op& op, const Implementation& implementation, const Problem& problem,
                                             const DeviceFacts& device, std::span<const std::int64_t> config);
/// True when the config has one declared value for each parameter. A library's parameters take any value.
bool is_declared(const Implementation& implementation, std::span<const std::int64_t> config) noexcept;

/// Returns every config that meets [constraints] and [search], in the manifest's order (last parameter fastest). The default and a
/// record's config may be outside it. Empty for a library, which proposes configs itself (jit/library.hpp). Throws
/// Error(bad_manifest) after most_search_steps.
std::vector<Config> search_space(const Op& op, const Implementation& implementation, const Problem& problem,
                                 const DeviceFacts& device);
/// Returns how many configs meet [constraints], whatever [search] says; nothing when counting takes more than most_search_steps. 0 for a
/// library.
std::optional<std::size_t> count_legal(const Op& op, const Implementation& implementation, const Problem& problem,
                                       const DeviceFacts& device);
/// Returns one config of the search space for each kernel: of those that differ only in launch-only parameters, the one with their
/// defaults, or the first when that is not legal.
std::vector<Config> searched_space(const Op& op, const Implementation& implementation, const Problem& problem,
                                   const DeviceFacts& device);
/// Returns the legal configs of the same kernel: `config`, then those that differ from it only in launch-only parameters.
std::vector<Config> launches_of(const Op& op, const Implementation& implementation, const Problem& problem,
                                const DeviceFacts& device, const Config& config);
/// Returns the config with launch-only parameters at their defaults, which is the same for all configs of one kernel.
Config kernel_config(const Implementation& implementation, Config config);
/// "threads=256 vector=8"
std::string to_string(const Implementation& implementation, std::span<const std::int64_t> config);
/// Parses that form. A record may be older than a parameter, which then has its default: a kernel's config may lack some, but not all. Returns
/// nothing when a name or a value is not declared, or a library's parameter is missing.
std::optional<Config> parse_config(const Implementation& implementation, std::string_view text);

/// Returns the name expression of each pass, its placeholders filled with C++ type names, words of choices and integers. A pass whose
/// `when` is 0 gives an empty string. Throws Error(bad_manifest) when a placeholder depends on a size that the bucket does not fix.
std::vector<std::string> name_expressions(const Op& op, std::span<const Pass> passes, const Symbols& symbols,
                                          std::span<const std::int64_t> frame);

}  // namespace kiln::manifest
