#include "answer/next_buckets.hpp"

#include <algorithm>

#include "manifest/problem_set.hpp"
#include "manifest/region.hpp"

namespace kiln::answer {
namespace {

constexpr int farthest_step = 3;
constexpr std::size_t most_shapes = 8, most_lengths = 8;

class Next {
 public:
  Next(const manifest::Op& op, const Problem& missed)
      : op_(op), missed_(missed), open_(manifest::open_axes(op, missed)) {}

  void add_shapes(std::span<const Problem> met, std::span<const BucketCount> counted) {
    std::size_t shapes = 0;
    const auto add_shape = [&](const Problem& of) {
      if (shapes < most_shapes && add(with_lengths(of, missed_), 0)) ++shapes;
    };
    for (std::size_t i = met.size(); i-- > 0;) add_shape(met[i]);
    for (const BucketCount& each : counted) add_shape(each.bucket);
  }

  void add_lengths(std::span<const Problem> met, std::span<const BucketCount> counted) {
    std::size_t lengths = 0;
    const auto add_length = [&](const Problem& of) {
      if (lengths < most_lengths && add(with_lengths(missed_, of), 1 + static_cast<int>(lengths))) ++lengths;
    };
    for (const BucketCount& each : counted) add_length(each.bucket);
    lengths = 0;
    for (std::size_t i = met.size(); i-- > 0;) add_length(met[i]);
  }

  void add_neighbours() {
    std::vector<std::int64_t> done;  // lengths of missed_
    for (const std::size_t axis : open_) {
      const std::int64_t length = missed_.axes[axis];
      if (std::ranges::find(done, length) != done.end()) continue;
      done.push_back(length);
      Problem up = missed_, down = missed_;
      for (int step = 1; step <= farthest_step; ++step) {
        if (move(up, length, 1)) add(up, step);
        if (move(down, length, -1)) add(down, step);
      }
    }
  }

  std::vector<NextBucket> take() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const NextBucket& a, const NextBucket& b) { return a.rank < b.rank; });
    return std::move(found_);
  }

 private:
  [[nodiscard]] bool is_open(const Problem& problem, std::size_t axis) const {
    return !manifest::is_exact(op_, axis, problem);
  }

  /// The shape of one bucket at the lengths of another one.
  [[nodiscard]] Problem with_lengths(const Problem& shape, const Problem& lengths) const {
    Problem joined = shape;
    for (std::size_t i = 0; i < op_.axes.size(); ++i)
      if (is_open(shape, i) && is_open(lengths, i)) joined.axes[i] = lengths.axes[i];
    return joined;
  }

  /// Moves all axes on which `missed_` has this length to the next bucket up or down. Returns false where one has none.
  bool move(Problem& bucket, std::int64_t length, int direction) const {
    const Problem low = manifest::low_corner(op_, bucket);
    Problem moved = bucket;
    for (const std::size_t i : open_) {
      if (missed_.axes[i] != length) continue;
      const manifest::Axis& axis = op_.axes[i];
      if (direction > 0 ? bucket.axes[i] >= axis.maximum : low.axes[i] <= axis.minimum) return false;
      const std::int64_t size = direction > 0 ? bucket.axes[i] + 1 : low.axes[i] - axis.multiple_of;
      moved.axes[i] = manifest::next_legal(axis, std::max(size, axis.minimum));
    }
    bucket = manifest::bucket_of(op_, moved);
    return true;
  }

  /// Returns whether the bucket is one of the op that was not added before. The least rank of an equal one stays.
  bool add(const Problem& problem, int rank) {
    if (!manifest::is_valid(op_, problem)) return false;
    const Problem bucket = manifest::bucket_of(op_, problem);
    if (bucket == missed_) return false;
    for (NextBucket& each : found_)
      if (each.bucket == bucket) {
        each.rank = std::min(each.rank, rank);
        return false;
      }
    found_.push_back({bucket, rank});
    return true;
  }

  const manifest::Op& op_;
  const Problem& missed_;
  std::vector<std::size_t> open_;
  std::vector<NextBucket> found_;
};

}  // namespace

std::vector<NextBucket> next_buckets(const manifest::Op& op, const Problem& missed, std::span<const Problem> met,
                                     std::span<const BucketCount> counted) {
  Next next(op, missed);
  next.add_shapes(met, counted);
  next.add_lengths(met, counted);
  next.add_neighbours();
  return next.take();
}

}  // namespace kiln::answer
