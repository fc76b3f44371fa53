#include "engine/staleness.hpp"

#include <algorithm>

#include "engine/lookup.hpp"
#include "tune/deploy.hpp"

namespace kiln::engine {
namespace {

/// Where a record stands among the present ops.
struct Place {
  const spec::Op* op = nullptr;  // null: not loaded
  std::optional<spec::DeviceFacts> device;
  std::optional<Problem> bucket;  // nothing when no look-up can form the record's key
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
  if (bucket && spec::record_key(*op, *bucket, *place.device, regime) == record.key) place.bucket = bucket;
  return place;
}

}  // namespace

Standing standing_of(std::span<const spec::Op> ops, const store::Record& record) {
  const Place place = place_of(ops, record);
  if (place.op == nullptr || !place.device) return Standing::unknown;
  if (!place.bucket) return Standing::stale;
  const tune::Usable usable = tune::usable(*place.op, *place.bucket, *place.device, record);
  if (usable.implementation == nullptr) return Standing::stale;
  const auto source = present_source(*place.op, *usable.implementation, *place.bucket, *place.device, usable.config);
  return source == record.source_digest ? Standing::present : Standing::stale;
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
