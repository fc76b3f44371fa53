// Estimates how much slower than a tuned config a fallback is, from records with their candidates.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "answer/neighbours.hpp"
#include "answer/serving.hpp"
#include "manifest/problem.hpp"
#include "store/record.hpp"

namespace kiln::answer {

/// A record with its candidates, its bucket and its device.
struct KnownRecord {
  store::Record record;
  Problem bucket;
  manifest::DeviceFacts device;
};
/// Returns the nearest records of the bucket, up to a fixed number, with their candidates.
std::vector<KnownRecord> known_near(store::Layers& layers, const manifest::Bucket& bucket);

// Each returns a median of the time over the best time, where 1 is as fast as tuned, or nothing when too few records
// apply.

/// Slowdown of winners in buckets at about this distance (in doublings) from their own, where they were candidates.
std::optional<double> transfer_slowdown(const manifest::Op& op, std::span<const KnownRecord> known, double distance);
/// Slowdown of the default, in buckets that have the same default as baseline.
std::optional<double> default_slowdown(const manifest::Op& op, std::span<const KnownRecord> known,
                                       const manifest::Variant& standing_in);
/// Slowdown of the model's guesses, each at its own sizes.
std::optional<double> guess_slowdown(const manifest::Op& op, std::span<const KnownRecord> known, Regime regime);

/// Returns an upper bound of the slowdown, without records: the model's estimate over the least time of the op's cost
/// at the device's rates. At least 1; exactly 1 where the cost overflows.
double slowdown_over_bound(const manifest::Site& site, const manifest::Variant& standing_in, const Problem& at);

}  // namespace kiln::answer
