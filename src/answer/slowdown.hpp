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

/// What a benchmark of built-in ops found of the model's choices in buckets without a record.
struct Benchmarked {
  double median, most;  // time over a tuned config's; 95 % are at most `most`
  int problems;
};
/// `distance`: doublings from the nearest record. Nothing for other ops, devices and distances than were timed.
std::optional<Benchmarked> benchmarked_slowdown(const manifest::Bucket& bucket, double distance);

}  // namespace kiln::answer
