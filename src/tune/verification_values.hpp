// The run-time values that launches without a caller are given: `verify` of the manifest, else the default, else a
// small value.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kiln/arguments.hpp"
#include "manifest/problem.hpp"

namespace kiln::tune {

/// Returns manifest::frame_of, its run-time integers replaced by those that a verification gives. An integer with
/// neither `verify` nor a default is 1. Those of `given` have its values, and defaults that depend on them follow. A
/// team's rank that is not given is 0.
std::vector<std::int64_t> verification_frame(const manifest::Site& site, const Problem& problem,
                                             std::span<const std::pair<RuntimeId, std::int64_t>> given = {});
/// Sets the run-time values that have `verify` or no default, but a team's rank, which is not a launch's. A real with
/// neither is 1e-5, which suits an epsilon.
void set_verification_values(const manifest::Op& op, std::span<const std::int64_t> frame, Arguments& arguments);

/// The id of run-time value `index`, as Op::runtime gives it.
RuntimeId runtime_id(const manifest::Op& op, std::size_t index) noexcept;

}  // namespace kiln::tune
