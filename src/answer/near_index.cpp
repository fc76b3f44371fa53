#include "answer/near_index.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>
#include <string>

namespace kiln::answer {

NearIndex::NearIndex(store::Layers& layers, const manifest::Site& site) : layers_(layers), op_(*site.op) {
  std::set<std::string> keys;
  for (store::Found<store::Record>& found : layers.records(op_.name)) {
    const store::Record& record = found.value;
    if (record.revision != op_.revision || record.regime != manifest::to_string(site.regime)) continue;
    const auto bucket = manifest::parse_bucket(op_, record.bucket);
    const auto facts = manifest::DeviceFacts::from_device_class(record.device_class);
    if (!bucket || !facts || !keys.insert(record.key).second) continue;
    const bool is_other = facts->device_class() != site.device->device_class();
    trees_[{bucket->selections, is_other}].push_back({entries_.size(), 0});
    entries_.push_back({std::move(found), place_of(*bucket, device_distance(*facts, *site.device)), false});
  }
  for (auto& [of, tree] : trees_) arrange(tree);
}

NearIndex::Place NearIndex::place_of(const Problem& problem, double device_distance) const {
  Place place{};
  for (std::size_t i = 0; i < op_.axes.size(); ++i)
    place[i] = std::log2(static_cast<double>(std::max<std::int64_t>(problem.axes[i], 1)));
  place.back() = device_distance;
  return place;
}

void NearIndex::arrange(std::span<Node> nodes) {
  if (nodes.size() < 2) return;
  const auto in = [&](std::size_t dimension) {
    return [this, dimension](const Node& node) { return entries_[node.entry].place[dimension]; };
  };
  std::size_t widest = 0;
  double width = -1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const auto [low, high] = std::ranges::minmax(nodes, {}, in(i));
    if (in(i)(high)-in(i)(low) <= width) continue;
    width = in(i)(high)-in(i)(low);
    widest = i;
  }
  const std::size_t middle = nodes.size() / 2;
  std::ranges::nth_element(nodes, nodes.begin() + static_cast<std::ptrdiff_t>(middle), {}, in(widest));
  nodes[middle].dimension = widest;
  arrange(nodes.first(middle));
  arrange(nodes.subspan(middle + 1));
}

void NearIndex::offer(std::size_t entry, Query& query) {
  ++compared_;
  const Place& place = entries_[entry].place;
  Near near{0, entry};
  for (std::size_t i = 0; i < dimensions; ++i) near.distance += std::abs(place[i] - query.place[i]);
  const auto is_before = [&](const Near& a, const Near& b) {
    if (a.distance != b.distance) return a.distance < b.distance;
    return entries_[a.entry].found.value.key < entries_[b.entry].found.value.key;
  };
  query.found.insert(std::ranges::upper_bound(query.found, near, is_before), near);
  if (query.found.size() > query.at_most) query.found.pop_back();
}

void NearIndex::search(std::span<const Node> nodes, Query& query) {
  if (nodes.empty() || query.at_most == 0) return;
  const double least = std::accumulate(query.missed.begin(), query.missed.end(), 0.0);
  constexpr double rounding = 1e-9;  // of equal distances the lesser key comes first, so none of them may be missed
  if (query.found.size() == query.at_most && least > query.found.back().distance + rounding) return;
  const std::size_t middle = nodes.size() / 2;
  const Node& root = nodes[middle];
  offer(root.entry, query);
  const double apart = query.place[root.dimension] - entries_[root.entry].place[root.dimension];
  const auto before = nodes.first(middle), after = nodes.subspan(middle + 1);
  search(apart <= 0 ? before : after, query);
  const double missed =
      std::exchange(query.missed[root.dimension], std::max(query.missed[root.dimension], std::abs(apart)));
  search(apart <= 0 ? after : before, query);
  query.missed[root.dimension] = missed;
}

store::Record NearIndex::take(Entry& entry) {
  if (!std::exchange(entry.has_candidates, true)) entry.found.value.candidates = layers_.candidates_of(entry.found);
  return entry.found.value;
}

std::vector<store::Record> NearIndex::nearest(const Problem& bucket, std::size_t at_most) {
  std::vector<store::Record> records;
  for (const bool is_other : {false, true}) {
    const auto tree = trees_.find({bucket.selections, is_other});
    if (tree == trees_.end()) continue;
    Query query{place_of(bucket, 0), {}, at_most - records.size()};
    search(tree->second, query);
    for (const Near& each : query.found) records.push_back(take(entries_[each.entry]));
  }
  return records;
}

}  // namespace kiln::answer
