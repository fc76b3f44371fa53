// What could run: an implementation with a config. Which are legal, which are tried, and their text form.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "manifest/site.hpp"

namespace kiln::manifest {

struct Variant {
  const Implementation* implementation = nullptr;  // null: none
  Config config{};                                 // a value for each parameter; empty: all are 0 in a frame

  [[nodiscard]] explicit operator bool() const noexcept { return implementation != nullptr; }
  bool operator==(const Variant&) const = default;
  bool operator<(const Variant& other) const {
    return std::tie(implementation, config) < std::tie(other.implementation, other.config);
  }
  /// "vectorized threads=256 vector=8"
  [[nodiscard]] std::string name() const;
  /// frame_of() with the config's parameters; of none: frame_of().
  [[nodiscard]] std::vector<std::int64_t> frame(const Site& site, const Problem& at) const;
  /// The text of the first constraint that it breaks at these sizes, or nothing.
  [[nodiscard]] std::optional<std::string> broken_constraint(const Site& site, const Problem& at) const;
};

/// The default, which a library does not have.
Variant default_of(const Implementation& implementation);

/// Returns why an implementation cannot serve this problem on this device, or nothing when one of its configs can.
std::optional<std::string> why_not_eligible(const Site& site, const Implementation& implementation,
                                            const Problem& problem);
/// True when the config has one declared value for each parameter. A library's parameters take any value.
bool is_declared(const Implementation& implementation, std::span<const std::int64_t> config) noexcept;

/// Returns every config that meets [constraints] and [search], in the manifest's order (last parameter fastest). The
/// default and a record's config may be outside it. Empty for a library, which proposes configs itself
/// (jit/library.hpp). Throws Error(bad_manifest) after most_search_steps.
std::vector<Config> search_space(const Site& site, const Implementation& implementation, const Problem& problem);
/// Returns how many configs meet [constraints], whatever [search] says; nothing when counting takes more than
/// most_search_steps. 0 for a library.
std::optional<std::size_t> count_legal(const Site& site, const Implementation& implementation, const Problem& problem);
/// Returns the configs that meet [constraints], whatever [search] says, in the manifest's order and at most `most` of
/// them; nothing when they are too many to go through. Empty for a library.
std::optional<std::vector<Config>> legal_configs(const Site& site, const Implementation& implementation,
                                                 const Problem& problem, std::size_t most);
/// Returns one config of the search space for each kernel: of those that differ only in launch-only parameters, the one
/// with their defaults, or the first when that is not legal.
std::vector<Config> searched_space(const Site& site, const Implementation& implementation, const Problem& problem);
/// Returns the legal configs of the same kernel: `variant`'s, then those that differ from it only in launch-only
/// parameters.
std::vector<Config> launches_of(const Site& site, const Variant& variant, const Problem& problem);
/// Returns the config with launch-only parameters at their defaults, which is the same for all configs of one kernel.
Config kernel_config(const Implementation& implementation, Config config);
/// "threads=256 vector=8"
std::string to_string(const Implementation& implementation, std::span<const std::int64_t> config);
/// Parses that form. A record may be older than a parameter, which then has its default: a kernel's config may lack
/// some, but not all. Returns nothing when a name or a value is not declared, or a library's parameter is missing.
std::optional<Config> parse_config(const Implementation& implementation, std::string_view text);

}  // namespace kiln::manifest
