#include "engine/stale.hpp"

#include <set>

namespace kiln::engine {
namespace {

/// One bucket a key, as the records of an op name them.
std::vector<Problem> recorded_buckets(const spec::Op& op, const spec::DeviceFacts& device, Regime regime,
                                      store::Layers& layers) {
  std::set<std::string> seen;
  std::vector<Problem> buckets;
  for (const auto& found : layers.records(op.name)) {
    const store::Record& record = found.value;
    if (record.revision != op.revision || record.regime != spec::to_string(regime) ||
        record.device_class != device.device_class())
      continue;
    const auto bucket = parse_bucket(op, record.bucket);
    // A record may say what it likes of itself: look-ups go by the key alone.
    if (bucket && spec::record_key(op, *bucket, device, regime) == record.key && seen.insert(record.key).second)
      buckets.push_back(*bucket);
  }
  return buckets;
}

}  // namespace

Staleness find_stale(std::span<const spec::Op> ops, const spec::DeviceFacts& device, Regime regime,
                     store::Layers& layers) {
  Staleness staleness;
  for (const spec::Op& op : ops) {
    for (const Problem& bucket : recorded_buckets(op, device, regime, layers)) {
      const Lookup lookup = look_up(op, bucket, device, regime, layers, false);
      ++staleness.records;
      if (!lookup.is_hit()) ++staleness.unusable;
      if (lookup.is_hit() && lookup.stale) staleness.stale.push_back({&op, bucket});
    }
  }
  return staleness;
}

}  // namespace kiln::engine
