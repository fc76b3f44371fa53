#include "answer/timed_sizes.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "answer/tolerances.hpp"

namespace kiln::answer {
namespace {

void combine(const Problem& bucket, TimedSizes& sizes) {
  sizes.problems.assign(1, bucket);
  for (std::size_t i = 0; i < sizes.axes.size(); ++i) {
    std::vector<Problem> more;
    for (const Problem& each : sizes.problems)
      for (const std::int64_t end : sizes.ends[i]) {
        more.push_back(each);
        more.back().axes[sizes.axes[i]] = end;
      }
    sizes.problems = std::move(more);
  }
}

/// The fastest config at a size.
struct Fastest {
  std::size_t config = 0;
  double ns = std::numeric_limits<double>::infinity();
};
std::vector<Fastest> envelope(std::size_t sizes, std::span<const std::vector<double>> ns) {
  std::vector<Fastest> fastest(sizes);
  for (std::size_t c = 0; c < ns.size(); ++c)
    for (std::size_t i = 0; i < sizes; ++i)
      if (ns[c][i] < fastest[i].ns) fastest[i] = {c, ns[c][i]};
  return fastest;
}

}  // namespace

std::vector<std::int64_t> AxisSizes::evenly(std::int64_t parts) const {
  const std::int64_t width = high - low + 1;
  parts = std::min(parts, width);
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 1; i <= parts; ++i) {
    std::int64_t size = low - 1 + width / parts * i + width % parts * i / parts;
    size = i == parts ? high : size - size % multiple;
    if (size >= low && (sizes.empty() || size > sizes.back())) sizes.push_back(size);
  }
  return sizes;
}

AxisSizes sizes_of(const manifest::Op& op, const Problem& bucket, std::size_t axis) {
  return {manifest::low_corner(op, bucket).axes[axis], bucket.axes[axis], op.axes[axis].multiple_of};
}

std::vector<std::int64_t> some_of(std::span<const std::int64_t> sizes, std::size_t at_most) {
  std::vector<std::int64_t> some(std::min(at_most, sizes.size()));
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = sizes[i * sizes.size() / some.size()];
  return some;
}

TimedSizes even_sizes(const manifest::Op& op, const Problem& bucket, std::size_t at_most) {
  TimedSizes sizes{manifest::open_axes(op, bucket), {}, {}};
  const std::size_t most = std::min(most_ends(sizes.axes.size()), at_most);
  for (const std::size_t axis : sizes.axes) {
    const AxisSizes all = sizes_of(op, bucket, axis);
    const std::int64_t parts = (all.high - all.low + 1) / finest_step;
    sizes.ends.push_back(all.evenly(std::clamp<std::int64_t>(parts, 1, static_cast<std::int64_t>(most))));
  }
  combine(bucket, sizes);
  return sizes;
}

TimedSizes with_ends(const Problem& bucket, TimedSizes sizes, std::span<const std::int64_t> ends) {
  std::vector<std::int64_t>& all = sizes.ends.front();
  all.insert(all.end(), ends.begin(), ends.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  combine(bucket, sizes);
  return sizes;
}

std::vector<std::int64_t> stairs(std::span<const std::int64_t> sizes, std::span<const std::vector<double>> ns,
                                 std::vector<std::int64_t> ends, std::size_t at_most) {
  const std::vector<Fastest> fastest = envelope(sizes.size(), ns);
  std::vector<std::int64_t> added;
  while (added.size() < at_most) {
    double worst = worth_a_part;
    std::optional<std::size_t> where;
    std::size_t next = 0;  // index of the end that stands for `where`
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t end = *std::ranges::lower_bound(ends, sizes[i]);
      const auto at_end = static_cast<std::size_t>(std::ranges::lower_bound(sizes, end) - sizes.begin());
      const double behind = ns[fastest[at_end].config][i] / fastest[i].ns;
      if (!(behind > worst)) continue;
      worst = behind;
      where = i;
      next = at_end;
    }
    if (!where) break;
    const std::vector<double>& best = ns[fastest[*where].config];
    std::size_t stair = *where;
    while (stair + 1 < next && best[stair + 1] <= same_stair * best[*where]) ++stair;
    added.push_back(sizes[stair]);
    ends.insert(std::ranges::lower_bound(ends, sizes[stair]), sizes[stair]);
  }
  return added;
}

std::vector<Interval> intervals(const manifest::Op& op, const Problem& bucket, const TimedSizes& sizes,
                                const Assignment& assignment) {
  const Problem low = manifest::low_corner(op, bucket);
  Assignment filled = assignment;
  for (std::size_t i = filled.size(); i-- > 0;)
    if (!filled[i] && i + 1 < filled.size()) filled[i] = filled[i + 1];
  for (std::size_t i = 1; i < filled.size(); ++i)
    if (!filled[i]) filled[i] = filled[i - 1];
  std::vector<Interval> result;
  for (std::size_t i = 0; i < filled.size(); ++i) {
    if (!filled[i]) continue;
    Interval own{{low, sizes.problems[i]}, *filled[i], i};
    for (std::size_t a = 0; a < sizes.axes.size(); ++a) {
      const auto at = std::ranges::lower_bound(sizes.ends[a], own.region.high.axes[sizes.axes[a]]);
      if (at != sizes.ends[a].begin()) own.region.low.axes[sizes.axes[a]] = *std::prev(at) + 1;
    }
    // Joins along the last axis, then whole rows along the others.
    bool is_joined = true;
    while (is_joined) {
      is_joined = false;
      for (auto each = result.rbegin(); each != result.rend() && !is_joined; ++each) {
        if (each->candidate != own.candidate) continue;
        std::size_t different = 0, along = 0;
        for (const std::size_t axis : sizes.axes)
          if (each->region.low.axes[axis] != own.region.low.axes[axis] ||
              each->region.high.axes[axis] != own.region.high.axes[axis]) {
            ++different;
            along = axis;
          }
        if (different != 1 || each->region.high.axes[along] + 1 != own.region.low.axes[along]) continue;
        own.region.low.axes[along] = each->region.low.axes[along];
        result.erase(std::next(each).base());
        is_joined = true;
      }
    }
    result.push_back(own);
  }
  return result;
}

}  // namespace kiln::answer
