// Which real lengths a regret is measured at, and under which bucket policies.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem_set.hpp"
#include "manifest/op.hpp"

namespace kiln::cli::bench {

/// "pow2", "exact", "edges:16,64,256", "pow2_steps:256,2048/256,4096/512" (up to 256 powers of two, then multiples of 256 up to 2048),
/// or the form that a key has. Throws Error(bad_input) for another, and for edges that the axis does not have.
manifest::BucketPolicy parse_policy(std::string_view text, const manifest::Axis& axis);

/// The legal sizes within `ranges`: `count` drawn evenly over their logarithm, and for each policy the ones right after a bucket's
/// edge, where the bucket's config is farthest from what it was tuned for. Distinct, rising. The same seed draws the same.
std::vector<std::int64_t> lengths_of(const manifest::Axis& axis, std::span<const Range> ranges, std::size_t count,
                                     std::uint64_t seed, std::span<const manifest::BucketPolicy> policies);

}  // namespace kiln::cli::bench
