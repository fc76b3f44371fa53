// The lengths and bucket policies for which regret is measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem_set.hpp"
#include "manifest/op.hpp"

namespace kiln::cli::bench {

/// Parses "pow2", "exact", "edges:16,64,256", "pow2_steps:256,2048/256,4096/512" (powers of two up to 256, then
/// multiples of 256 up to 2048), or a policy as a key holds it. Throws Error(bad_input) for other text and for edges
/// that are not legal on the axis.
manifest::BucketPolicy parse_policy(std::string_view text, const manifest::Axis& axis);

/// Returns distinct legal sizes within `ranges`, in rising order: `count` drawn evenly over their logarithm, and for
/// each policy those right after a bucket's edge, which are farthest from the sizes that the config was tuned for.
/// Equal seeds give equal sizes.
std::vector<std::int64_t> lengths_of(const manifest::Axis& axis, std::span<const Range> ranges, std::size_t count,
                                     std::uint64_t seed, std::span<const manifest::BucketPolicy> policies);

}  // namespace kiln::cli::bench
