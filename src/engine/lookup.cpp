#include "engine/lookup.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "jit/executable.hpp"
#include "kiln/error.hpp"

namespace kiln::engine {
namespace {

double log_distance(const spec::Op& op, const Problem& a, const Problem& b) {
  double distance = 0;
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    distance += std::abs(std::log2(static_cast<double>(a.axes[i])) - std::log2(static_cast<double>(b.axes[i])));
  return distance;
}

void use(Lookup& lookup, tune::Usable usable, Origin origin, double cost_ns, std::string why) {
  lookup.implementation = usable.implementation;
  lookup.config = std::move(usable.config);
  lookup.origin = origin;
  lookup.cost_ns = cost_ns;
  lookup.why = std::move(why);
}

/// The first layer's record that can serve; one that cannot does not hide those behind it.
bool use_record(Lookup& lookup, const spec::Op& op, const spec::DeviceFacts& device, store::Layers& layers) {
  store::Counters met;
  tune::Usable usable;
  const auto can_serve = [&](const store::Found<store::Record>& found) {
    usable = tune::usable(op, lookup.bucket, device, found.value);
    if (usable.implementation == nullptr && lookup.record_unusable.empty()) lookup.record_unusable = usable.why_not;
    return usable.implementation != nullptr;
  };
  lookup.record = layers.find_record(lookup.key, can_serve, &met);
  if (!lookup.record) {
    lookup.miss = lookup.record_unusable.empty() ? reason_of(met, Miss::absent) : Miss::unusable;
    return false;
  }
  lookup.record_unusable.clear();
  const store::Record& record = lookup.record->value;
  lookup.stale =
      record.source_digest != present_source(op, *usable.implementation, lookup.bucket, device, usable.config);
  const bool overlay = layers.layers()[lookup.record->layer].kind == store::LayerKind::overlay;
  use(lookup, std::move(usable), overlay ? Origin::overlay : Origin::base, record.cost_ns,
      lookup.stale ? "the record was tuned from other sources; it serves until it is tuned again"
                   : "the record's config is legal in this bucket");
  return true;
}

}  // namespace

std::string present_source(const spec::Op& op, const spec::Implementation& implementation, const Problem& bucket,
                           const spec::DeviceFacts& device, std::span<const std::int64_t> config) {
  const auto frame = spec::make_frame(op, &implementation, bucket, device, config);
  return spec::to_hex(jit::source_digest(jit::specialise(op, implementation, frame, {})));
}

std::optional<Nearest> nearest_record(const spec::Op& op, const Problem& bucket, const spec::DeviceFacts& device,
                                      Regime regime, store::Layers& layers) {
  std::optional<Nearest> best;
  double best_distance = 0;
  for (auto& found : layers.records(op.name)) {
    store::Record& record = found.value;
    if (record.revision != op.revision || record.regime != spec::to_string(regime)) continue;
    const auto other = parse_bucket(op, record.bucket);
    if (!other || other->selections != bucket.selections) continue;
    constexpr double other_device = 1e6;  // after every record of this device class
    const double distance =
        log_distance(op, *other, bucket) + (record.device_class == device.device_class() ? 0 : other_device);
    if (best && (distance > best_distance || (distance == best_distance && record.key >= best->record.key))) continue;
    tune::Usable usable = tune::usable(op, bucket, device, record);
    if (usable.implementation == nullptr) continue;
    best = Nearest{std::move(record), std::move(usable)};
    best_distance = distance;
  }
  return best;
}

Lookup look_up(const spec::Op& op, const Problem& problem, const spec::DeviceFacts& device, Regime regime,
               store::Layers& layers, bool stand_ins) {
  Lookup lookup;
  lookup.bucket = spec::bucket_of(op, problem);
  lookup.key = spec::record_key(op, lookup.bucket, device, regime);
  if (use_record(lookup, op, device, layers)) return lookup;
  if (!stand_ins) return lookup;
  if (auto nearest = nearest_record(op, lookup.bucket, device, regime, layers)) {
    const std::string why = fmt::format("no usable record for this bucket; the nearest is {}", nearest->record.bucket);
    use(lookup, std::move(nearest->usable), Origin::nearest, nearest->record.cost_ns, why);
    return lookup;
  }
  tune::Usable fallback = tune::default_for(op, lookup.bucket, device);
  const std::string why =
      fallback.implementation != nullptr ? "no record is near; the op's first legal default" : fallback.why_not;
  use(lookup, std::move(fallback), Origin::default_, 0, why);
  return lookup;
}

}  // namespace kiln::engine
