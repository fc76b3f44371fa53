// The few configs that serve a bucket, from what was compared at each of its lengths. Pure.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tune/search.hpp"

namespace kiln::tune {

/// How a candidate compares at one length.
struct Standing {
  std::size_t candidate = 0;
  double behind = 1;  // its time over the best one's
  bool ties = false;  // as choose() has it
  int registers = 0;
  bool has_code = true;  // to keep and to load; a library's has none
};
/// `footprint_of` is asked for those compared alone.
std::vector<Standing> standings(const Comparison& comparison,
                                const std::function<Footprint(std::size_t candidate)>& footprint_of);

/// By length, the candidate that serves it; nothing where none came out right.
using Assignment = std::vector<std::optional<std::size_t>>;

inline constexpr std::size_t most_configs =
    8;  // of a record and role that have machine code: each is kept, shipped, and loaded before its first launch

/// The fewest candidates of which one ties at every length; where that takes more than `at_most` with machine code, the tie is widened, to within 2 % of the
/// best, then 3, 5, 8 and so on, until so many do (a greedy cover: Chvatal 1979). Of candidates that cover as many lengths the baseline (0) comes first, then
/// who is less behind, then the fewest registers, then the lowest index. Each length is served by the fastest of them, unless that of the next length
/// is within 0.7 % of it: fewer intervals, for what no measurement tells apart.
Assignment choose_configs(std::span<const std::vector<Standing>> lengths, std::size_t at_most = most_configs);

}  // namespace kiln::tune
