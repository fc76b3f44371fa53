#include "engine/stale.hpp"

#include <algorithm>
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

/// Whether a look-up can come by this record on the way to `problem`: by the key of its bucket, as what refines that, or as the runner-up
/// of either.
bool is_asked_for(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime,
                  std::string_view key) {
  key = spec::parse_runner_up_key(key).value_or(key);
  if (spec::record_key(op, problem, device, regime) == key) return true;
  const Problem bucket = spec::bucket_of(op, problem);
  return tune::refined_problem(op, bucket, spec::record_key(op, bucket, device, regime), key) == problem;
}

/// Where a record stands among the present ops.
struct Place {
  const spec::Op* op = nullptr;  // null: not loaded
  std::optional<spec::DeviceFacts> device;
  std::optional<Problem> bucket;  // or a split bucket's edge; nothing when no look-up can form the record's key
};

Place place_of(std::span<const spec::Op> ops, const store::Record& record) {
  Place place;
  const auto op = std::find_if(ops.begin(), ops.end(), [&](const spec::Op& each) { return each.name == record.op; });
  if (op == ops.end()) return place;
  place.op = &*op;
  place.device = spec::DeviceFacts::from_device_class(record.device_class);
  if (!place.device) return place;
  const auto bucket = parse_bucket(*op, record.bucket);
  const Regime regime = record.regime == spec::to_string(Regime::hot_l2) ? Regime::hot_l2 : Regime::cold_l2;
  if (bucket && is_asked_for(*op, *bucket, *place.device, regime, record.key)) place.bucket = bucket;
  return place;
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
      if (lookup.is_hit() && lookup.is_stale_in_part()) staleness.stale.push_back({&op, bucket});
    }
  }
  return staleness;
}

Standing standing_of(std::span<const spec::Op> ops, const store::Record& record) {
  const Place place = place_of(ops, record);
  if (place.op == nullptr || !place.device) return Standing::unknown;
  if (!place.bucket) return Standing::stale;
  const tune::Usable usable = tune::usable(*place.op, *place.bucket, *place.device, record);
  if (usable.implementation == nullptr) return Standing::stale;
  return is_stale(*place.op, usable, *place.bucket, *place.device, record) ? Standing::stale : Standing::present;
}

std::vector<std::string> sources_asked_for(std::span<const spec::Op> ops, const store::Record& record) {
  const Place place = place_of(ops, record);
  std::vector<std::string> sources;
  if (!place.bucket) return sources;
  const auto add = [&](const std::vector<jit::Specialisation>& specialisations) {
    for (const jit::Specialisation& each : specialisations) sources.push_back(spec::to_hex(jit::source_digest(each)));
  };
  add(tune::deployed(*place.op, *place.bucket, *place.device, {}, &record));
  add(tune::verification(*place.op, *place.bucket, *place.device, {}));
  return sources;
}

}  // namespace kiln::engine
