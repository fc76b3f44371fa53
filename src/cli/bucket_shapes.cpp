#include "cli/bucket_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "manifest/region.hpp"

namespace kiln::cli {

std::string BucketShape::buckets() const {
  std::string shown = ' ' + manifest::display_text(*of.op, low) + ' ';
  for (std::size_t axis = 0; axis < of.op->axes.size(); ++axis) {
    if (low.axes[axis] == high.axes[axis]) continue;
    const std::string word = fmt::format(" {}={}", of.op->axes[axis].name, low.axes[axis]);
    shown.insert(shown.find(word + ' ') + word.size(), fmt::format("..{}", high.axes[axis]));
  }
  shown = shown.substr(1, shown.size() - 2);
  return members.size() == 1 ? shown : fmt::format("{}, {} buckets", shown, members.size());
}

std::vector<BucketShape> shapes_of(std::span<const ToldBucket> buckets) {
  std::vector<BucketShape> shapes;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const auto& [of, text] = buckets[i];
    const std::vector<std::size_t> open = manifest::open_axes(*of.op, of.bucket);
    Problem rest = of.bucket;
    for (const std::size_t axis : open) rest.axes[axis] = 0;
    const auto [at, is_new] =
        known.emplace(fmt::format("{} {} {}", of.op->name, manifest::to_string(*of.op, rest), text), shapes.size());
    if (is_new) shapes.push_back({of, of.bucket, of.bucket, {}, text});
    BucketShape& shape = shapes[at->second];
    for (const std::size_t axis : open) {
      shape.low.axes[axis] = std::min(shape.low.axes[axis], of.bucket.axes[axis]);
      shape.high.axes[axis] = std::max(shape.high.axes[axis], of.bucket.axes[axis]);
    }
    shape.members.push_back(i);
  }
  return shapes;
}

}  // namespace kiln::cli
