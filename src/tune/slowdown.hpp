// How much slower than a tuned config a stand-in must be expected to be, from how others like it fared.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "manifest/problem.hpp"
#include "store/record.hpp"
#include "tune/deploy.hpp"
#include "tune/neighbours.hpp"

namespace kiln::tune {

/// A record with its candidates, where it lies.
struct Known {
  store::Record record;
  Problem bucket;
  manifest::DeviceFacts device;
};
/// The nearest records of the bucket, with what candidates there are: enough to learn from, few enough to read.
std::vector<Known> known_near(store::Layers& layers, const manifest::Op& op, const Problem& bucket,
                              const manifest::DeviceFacts& device, Regime regime);

// Each is a median over what is known of the time taken over the best time: 1 is as fast as tuned. Nothing when too little is known.

/// Of a winner in buckets at about this distance from its own, where it was a candidate too.
std::optional<double> transfer_slowdown(const manifest::Op& op, std::span<const Known> known, double distance);
/// Of the default, in buckets where the same one is the baseline.
std::optional<double> default_slowdown(const manifest::Op& op, std::span<const Known> known, const Usable& standing_in);
/// Of the model's guesses, each at the sizes that it is for.
std::optional<double> guess_slowdown(const manifest::Op& op, std::span<const Known> known, Regime regime);

/// Where nothing is known: the model's estimate over what the op's cost takes at the device's rates, which no config falls short of. So at
/// most that, and never under 1; 1 where the cost does not compute.
double slowdown_over_bound(const manifest::Op& op, const Usable& standing_in, const Problem& at,
                           const manifest::DeviceFacts& device, Regime regime);

}  // namespace kiln::tune
