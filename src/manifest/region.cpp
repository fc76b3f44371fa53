#include "manifest/region.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace kiln::manifest {
namespace {

/// Accepts only what to_string() writes, so that each size has one form.
std::optional<std::int64_t> parse_size(std::string_view text) {
  std::int64_t size = 0;
  std::from_chars(text.data(), text.data() + text.size(), size);
  return size >= 0 && !text.empty() && fmt::to_string(size) == text ? std::optional(size) : std::nullopt;
}

/// Calls `take` with the text after "NAME=" of each open axis. Returns false when the names or their order differ.
template <class Take>
bool each_word(const Op& op, const Problem& bucket, std::string_view text, const Take& take) {
  for (const std::size_t axis : open_axes(op, bucket)) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const std::string start = op.axes[axis].name + "=";
    if (!word.starts_with(start) || !take(axis, word.substr(start.size()))) return false;
    const bool is_last = end == text.size();
    text.remove_prefix(is_last ? end : end + 1);
    if (!is_last && text.empty()) return false;
  }
  return text.empty();
}

bool lies_in(const Op& op, const Problem& bucket, const Region& region) {
  const Problem low = low_corner(op, bucket);
  for (const std::size_t axis : open_axes(op, bucket))
    if (region.low.axes[axis] < low.axes[axis] || region.high.axes[axis] > bucket.axes[axis] ||
        region.low.axes[axis] > region.high.axes[axis])
      return false;
  return true;
}

}  // namespace

std::vector<std::size_t> open_axes(const Op& op, const Problem& problem) {
  std::vector<std::size_t> axes;
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (!is_exact(op, i, problem)) axes.push_back(i);
  return axes;
}

bool Region::contains(const Op& op, const Problem& problem) const noexcept {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (!is_exact(op, i, low) && (problem.axes[i] < low.axes[i] || problem.axes[i] > high.axes[i])) return false;
  return true;
}

Region whole_of(const Op& op, const Problem& bucket) noexcept { return {low_corner(op, bucket), bucket}; }

std::string to_string(const Op& op, const Region& region) {
  std::string text;
  for (const std::size_t axis : open_axes(op, region.low))
    text += fmt::format("{}{}={}..{}", text.empty() ? "" : " ", op.axes[axis].name, region.low.axes[axis],
                        region.high.axes[axis]);
  return text;
}

std::optional<Region> parse_region(const Op& op, const Problem& bucket, std::string_view text) {
  Region region{bucket, bucket};
  const bool is_read = each_word(op, bucket, text, [&](std::size_t axis, std::string_view word) {
    const std::size_t dots = word.find("..");
    if (dots == std::string_view::npos) return false;
    const auto low = parse_size(word.substr(0, dots)), high = parse_size(word.substr(dots + 2));
    if (!low || !high) return false;
    region.low.axes[axis] = *low;
    region.high.axes[axis] = *high;
    return true;
  });
  return is_read && lies_in(op, bucket, region) ? std::optional(region) : std::nullopt;
}

std::string open_sizes(const Op& op, const Problem& problem) {
  std::string text;
  for (const std::size_t axis : open_axes(op, problem))
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", op.axes[axis].name, problem.axes[axis]);
  return text;
}

std::optional<Problem> parse_open_sizes(const Op& op, const Problem& bucket, std::string_view text) {
  Problem problem = bucket;
  const bool is_read = each_word(op, bucket, text, [&](std::size_t axis, std::string_view word) {
    const auto size = parse_size(word);
    if (size) problem.axes[axis] = *size;
    return size.has_value();
  });
  return is_read && lies_in(op, bucket, {problem, problem}) ? std::optional(problem) : std::nullopt;
}

std::vector<Problem> shorter_lengths(const Op& op, const Problem& bound) {
  Problem all = bound;
  std::vector<Problem> alone;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const Axis& axis = op.axes[i];
    const std::int64_t half = std::max(axis.minimum, (bound.axes[i] + 1) / 2);
    if (!axis.on_device || half == bound.axes[i]) continue;
    all.axes[i] = half;
    alone.push_back(bound);
    alone.back().axes[i] = half;
  }
  if (alone.size() > 1) alone.insert(alone.begin(), all);
  return alone;
}

std::vector<Problem> corners(const Op& op, const Problem& bucket) {
  const Problem low = low_corner(op, bucket);
  std::vector<Problem> one_high;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    if (low.axes[i] == bucket.axes[i]) continue;
    one_high.push_back(low);
    one_high.back().axes[i] = bucket.axes[i];
  }
  if (one_high.size() < 2) one_high.clear();  // the bucket itself
  return one_high;
}

}  // namespace kiln::manifest
