#include "answer/neighbours.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "answer/serving.hpp"

namespace kiln::answer {
namespace {

// Doublings. Another architecture changes more than half as many multiprocessors.
constexpr double other_architecture = 4;

double doublings(std::int64_t a, std::int64_t b) noexcept {
  const auto number = [](std::int64_t value) { return static_cast<double>(std::max<std::int64_t>(value, 1)); };
  return std::abs(std::log2(number(a)) - std::log2(number(b)));
}

}  // namespace

double axis_distance(const manifest::Op& op, const Problem& a, const Problem& b) noexcept {
  double distance = 0;
  for (std::size_t i = 0; i < op.axes.size(); ++i) distance += doublings(a.axes[i], b.axes[i]);
  return distance;
}

double device_distance(const manifest::DeviceFacts& a, const manifest::DeviceFacts& b) noexcept {
  return (a.sm() == b.sm() ? 0 : other_architecture) + doublings(a.sm_count(), b.sm_count()) +
         doublings(a.l2_bytes(), b.l2_bytes()) + doublings(a.shared_per_block(), b.shared_per_block()) +
         doublings(a.memory_bus_bits, b.memory_bus_bits);
}

std::vector<NearRecord> near_records(store::Layers& layers, const manifest::Bucket& bucket) {
  const manifest::Op& op = *bucket.op;
  std::vector<NearRecord> near;
  for (store::Found<store::Record>& found : layers.records(op.name)) {
    const store::Record& record = found.value;
    if (record.revision != op.revision || record.regime != manifest::to_string(bucket.regime)) continue;
    const auto other = manifest::parse_bucket(op, record.bucket);
    if (!other || other->selections != bucket.edge.selections) continue;
    const auto facts = manifest::DeviceFacts::from_device_class(record.device_class);
    if (!facts) continue;
    const double distance = axis_distance(op, *other, bucket.edge) + device_distance(*facts, *bucket.device);
    near.push_back(
        {std::move(found), *other, *facts, facts->device_class() == bucket.device->device_class(), distance});
  }
  std::ranges::stable_sort(near, {}, [](const NearRecord& each) {
    return std::tuple<bool, double, const std::string&>(!each.same_device, each.distance, each.found.value.key);
  });
  return near;
}

void add_winners(std::vector<manifest::Variant>& winners, const manifest::Bucket& bucket, const store::Record& record) {
  for (std::size_t i = record.choices.size(); i-- > 0;) {
    const store::Choice& choice = record.choices[i];
    manifest::Variant winner = usable(bucket, bucket.edge, choice.implementation, choice.config);
    if (!winner || !winner.implementation->has_kernels()) continue;
    winner.config = manifest::kernel_config(*winner.implementation, std::move(winner.config));
    if (std::ranges::find(winners, winner) == winners.end()) winners.push_back(std::move(winner));
  }
}

std::vector<store::Record> neighbours(store::Layers& layers, const manifest::Bucket& bucket, std::size_t at_most) {
  std::vector<store::Record> records;
  std::set<std::string> keys;
  for (NearRecord& near : near_records(layers, bucket)) {
    if (records.size() == at_most) break;
    if (!keys.insert(near.found.value.key).second) continue;
    near.found.value.candidates = layers.candidates_of(near.found);
    records.push_back(std::move(near.found.value));
  }
  return records;
}

}  // namespace kiln::answer
