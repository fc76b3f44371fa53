// What parts a bucket and what ties, by measured or expected times. tune/tolerances.hpp holds these numbers against the
// search's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace kiln::answer {

// Timed sizes (timed_sizes.cpp).
inline constexpr std::int64_t finest_step = 8;  // sizes between two ends
constexpr std::size_t most_ends(std::size_t open_axes) { return open_axes == 1 ? 16 : open_axes == 2 ? 4 : 2; }
inline constexpr double worth_a_part = 1.015;  // over the fastest at a size: above, an interval is parted there
inline constexpr double same_stair = 1.004;    // over a smaller size's time: above, another stair begins

// The configs of a record (portfolio.cpp).
inline constexpr std::size_t most_configs = 8;  // with machine code in a role; each is loaded before its first launch
inline constexpr double as_good = 1.007;  // over the best of the chosen: within, a size keeps its neighbour's config
inline constexpr std::array widened = {0.0,  0.01, 0.02, 0.03, 0.05,  // over 1: tolerances of a tie, tried in turn
                                       0.08, 0.12, 0.2,  0.5,  std::numeric_limits<double>::infinity()};
inline constexpr double behind_step = 0.005;   // of a mean logarithm: smaller differences do not count
inline constexpr double worth_a_sample = 1.2;  // expected over the fastest: a size that is not timed counts as this

}  // namespace kiln::answer
