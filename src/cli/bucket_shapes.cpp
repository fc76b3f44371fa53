#include "cli/bucket_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace kiln::cli {
namespace {

/// Returns the axis by which buckets of the op differ: the first with a policy that joins sizes.
std::size_t varying_axis(const manifest::Op& op) {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (op.axes[i].policies.front().policy.kind != manifest::PolicyKind::exact) return i;
  return 0;
}

}  // namespace

std::string BucketShape::buckets() const {
  Problem edge = of.bucket;
  edge.axes[axis] = low;
  std::string shown = manifest::display_text(*of.op, edge);
  if (members.size() == 1) return shown;
  const std::string word = fmt::format("{}={}", of.op->axes[axis].name, low);
  shown.replace(shown.find(word), word.size(), fmt::format("{}..{}", word, high));
  return fmt::format("{}, {} buckets", shown, members.size());
}

std::vector<BucketShape> shapes_of(std::span<const ToldBucket> buckets) {
  std::vector<BucketShape> shapes;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const auto& [of, text] = buckets[i];
    const std::size_t axis = varying_axis(*of.op);
    const std::int64_t size = of.bucket.axes[axis];
    Problem rest = of.bucket;
    rest.axes[axis] = 0;
    const auto [at, is_new] =
        known.emplace(fmt::format("{} {} {}", of.op->name, manifest::to_string(*of.op, rest), text), shapes.size());
    if (is_new) shapes.push_back({of, axis, size, size, {}, text});
    BucketShape& shape = shapes[at->second];
    shape.low = std::min(shape.low, size);
    shape.high = std::max(shape.high, size);
    shape.members.push_back(i);
  }
  return shapes;
}

}  // namespace kiln::cli
