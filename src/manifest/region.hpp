// The sizes of a bucket that one config serves: an interval for each axis whose policy is not exact there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/problem.hpp"

namespace kiln::manifest {

/// Returns the axes whose sizes vary inside a bucket: those whose policy is not exact for the problem's types and
/// choices, in the manifest's order.
std::vector<std::size_t> open_axes(const Op& op, const Problem& problem);

/// The problems of one bucket whose sizes lie between those of `low` and `high`, both included.
struct Region {
  Problem low;
  Problem high;
  bool operator==(const Region&) const = default;
  /// `problem` must be of the same bucket. No allocation.
  [[nodiscard]] bool contains(const Op& op, const Problem& problem) const noexcept;
};

/// Returns the whole bucket: from low_corner to the upper edges.
Region whole_of(const Op& op, const Problem& bucket) noexcept;
/// "m=65..96", or "rows=513..1024 cols=1025..2048": the open axes in the manifest's order. Empty without open axes.
std::string to_string(const Op& op, const Region& region);
/// Parses that form. Returns nothing when an open axis is missing, another axis is named, or an interval is empty or
/// outside the bucket.
std::optional<Region> parse_region(const Op& op, const Problem& bucket, std::string_view text);

/// The sizes of a problem on the open axes: "m=96". Empty without open axes.
std::string open_sizes(const Op& op, const Problem& problem);
/// Parses that form as a problem of the bucket. Returns nothing for any other text and for sizes outside the bucket.
std::optional<Problem> parse_open_sizes(const Op& op, const Problem& bucket, std::string_view text);

/// Returns lengths on the device with which candidates are verified when launched for `bound`: about half of it on all
/// axes that may have them, so that whole blocks lie past them, then on each such axis alone. Empty when no length can
/// be halved.
std::vector<Problem> shorter_lengths(const Op& op, const Problem& bound);

/// Returns the corners of a bucket where one axis is at its upper end and all others are at their low ends. Each needs
/// less memory than the bucket. Of two axes, each is so at its low end alone. Empty for a bucket with fewer axes that
/// vary.
std::vector<Problem> corners(const Op& op, const Problem& bucket);

}  // namespace kiln::manifest
