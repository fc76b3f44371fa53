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

/// Values for all axes and selections of an op. The bucket of a problem has the same shape: axes hold upper edges.
using kiln::Problem;

/// One "name=value" of a problem as a person writes it: "rows=512", "dtype=bf16".
struct Setting {
  std::string name;
  std::string value;
};

/// Throws Error(bad_input) naming the axis or selection: unknown, repeated, missing, not a number, under its minimum,
/// past its maximum, not a multiple, or not one of its values. A selection that is left out takes its default, which
/// is its first value unless the manifest says otherwise.
Problem make_problem(const Op& op, std::span<const Setting> settings);
/// The check of make_problem for numbers already in place. Throws Error(bad_input).
void check_problem(const Op& op, const Problem& problem);
/// True when check_problem would pass. No allocation, no exception.
bool is_valid(const Op& op, const Problem& problem) noexcept;
/// The stored form, as records, traces and JSON hold it: "rows=512 cols=4096 dtype=bf16 residual=none quantise=none".
std::string to_string(const Op& op, const Problem& problem);
/// The form for people: "rows=512 cols=4096 dtype=bf16". Leaves out each choice at its default, and each type at a default that the
/// manifest declares, so that make_problem reads it as the same problem.
std::string display_text(const Op& op, const Problem& problem);
/// Reads both forms. Returns nothing when the op's axes or selections have changed since the text was stored.
std::optional<Problem> parse_bucket(const Op& op, std::string_view text);

/// Each axis raised to its bucket's upper edge. No allocation.
Problem bucket_of(const Op& op, const Problem& problem) noexcept;
/// The smallest problem of a bucket, made awkward: the lowest value of each bucketed axis (multiples respected).
Problem low_corner(const Op& op, const Problem& bucket) noexcept;

/// A frame for `implementation` (or for the op alone when null): axes and selections of the problem, device facts, the
/// config's parameters; run-time integers take their defaults where they have one and 0 elsewhere, reals are 0.
std::vector<std::int64_t> make_frame(const Op& op, const Implementation* implementation, const Problem& problem,
                                     const DeviceFacts& device, std::span<const std::int64_t> config = {});

/// Why an implementation cannot serve this problem on this device, or nothing when it can (for at least one config).
std::optional<std::string> why_not_eligible(const Op& op, const Implementation& implementation, const Problem& problem,
                                            const DeviceFacts& device);
/// The first constraint that a config breaks at this problem, as its text, or nothing.
std::optional<std::string> broken_constraint(const Op& op, const Implementation& implementation, const Problem& problem,
                                             const DeviceFacts& device, std::span<const std::int64_t> config);
/// True when config has one declared value for each parameter; a library's takes any.
bool is_declared(const Implementation& implementation, std::span<const std::int64_t> config) noexcept;

/// Every config that meets [constraints] and [search], in the order of the manifest (last parameter fastest); the default may be outside
/// it, and so may a config of a record. None of a library's: it is asked itself (jit/library_matmul.hpp). Throws Error(bad_manifest) where going through them takes more than most_search_steps.
std::vector<Config> search_space(const Op& op, const Implementation& implementation, const Problem& problem,
                                 const DeviceFacts& device);
/// Of the search space, a config for each kernel: of those that differ in launch-only parameters alone, the one that has their defaults,
/// or the first where that is not legal.
std::vector<Config> searched_space(const Op& op, const Implementation& implementation, const Problem& problem,
                                   const DeviceFacts& device);
/// The legal configs of the same kernel: `config` itself, then those that differ from it in launch-only parameters alone.
std::vector<Config> launches_of(const Op& op, const Implementation& implementation, const Problem& problem,
                                const DeviceFacts& device, const Config& config);
/// The config with launch-only parameters at their defaults: the same for all configs of one kernel.
Config kernel_config(const Implementation& implementation, Config config);
/// "threads=256 vector=8"
std::string to_string(const Implementation& implementation, std::span<const std::int64_t> config);
/// Reads the same form. Nothing when a name or a value is not declared, or one is missing.
std::optional<Config> parse_config(const Implementation& implementation, std::string_view text);

/// The name expressions of a config: placeholders filled with C++ type names, choice words and integers.
/// Passes whose `when` is 0 give an empty string. Throws Error(bad_manifest) when a placeholder depends on a size
/// that the bucket does not fix.
std::vector<std::string> name_expressions(const Op& op, std::span<const Pass> passes, const Symbols& symbols,
                                          std::span<const std::int64_t> frame);

}  // namespace kiln::manifest
