#include "answer/stale.hpp"

#include <algorithm>
#include <set>

#include "answer/serving.hpp"
#include "jit/specialisation.hpp"
#include "kiln/error.hpp"
#include "store/json.hpp"

namespace kiln::answer {
namespace {

/// A record's op, device and bucket, as far as they are known here.
struct Place {
  const manifest::Op* op = nullptr;  // null: not loaded
  std::optional<manifest::DeviceFacts> device;
  std::optional<Problem> bucket;  // nothing where no look-up can form the record's key
};

Place place_of(const manifest::Catalogue& ops, const store::Record& record) {
  Place place;
  const manifest::Op* op = ops.op(record.op);
  if (op == nullptr) return place;
  place.op = op;
  place.device = manifest::DeviceFacts::from_device_class(record.device_class);
  if (!place.device) return place;
  const auto bucket = manifest::parse_bucket(*op, record.bucket);
  const Regime regime = record.regime == manifest::to_string(Regime::hot_l2) ? Regime::hot_l2 : Regime::cold_l2;
  if (bucket && manifest::Bucket({*op, *place.device, regime}, *bucket).key() == record.key) place.bucket = bucket;
  return place;
}

}  // namespace

std::vector<manifest::Bucket> recorded_buckets(const manifest::Site& site, store::Layers& layers) {
  const manifest::Op& op = *site.op;
  std::set<std::string> seen;
  std::vector<manifest::Bucket> buckets;
  for (const auto& found : layers.records(op.name)) {
    const store::Record& record = found.value;
    if (record.revision != op.revision || record.regime != manifest::to_string(site.regime) ||
        record.device_class != site.device->device_class_for(op))
      continue;
    const auto edge = manifest::parse_bucket(op, record.bucket);
    if (!edge) continue;
    const manifest::Bucket bucket(site, *edge);
    // Look-ups go by the key, whatever the record's other fields say.
    if (bucket.key() == record.key && seen.insert(record.key).second) buckets.push_back(bucket);
  }
  return buckets;
}

Staleness find_stale(std::span<const manifest::Op> ops, const manifest::DeviceFacts& device, Regime regime,
                     store::Layers& layers) {
  Staleness staleness;
  for (const manifest::Op& op : ops) {
    for (const manifest::Bucket& bucket : recorded_buckets({op, device, regime}, layers)) {
      const Resolution resolution = resolve(bucket, bucket.edge, layers, false);
      ++staleness.records;
      if (!resolution.is_hit()) ++staleness.unusable;
      if (resolution.is_stale()) staleness.stale.push_back({&op, bucket.edge});
    }
  }
  return staleness;
}

Freshness freshness_of(const manifest::Catalogue& ops, const store::Record& record) {
  const Place place = place_of(ops, record);
  if (place.op == nullptr || !place.device) return Freshness::unknown;
  if (!place.bucket) return Freshness::stale;
  const Servings servings = servings_of({{*place.op, *place.device}, *place.bucket}, record);
  if (!servings.any() || servings.unusable > 0) return Freshness::stale;
  for (const auto* role : {&servings.fastest, &servings.without_library})
    for (const Serving& each : *role)
      if (is_stale({*place.op, *place.device}, each, each.at(), each.choice)) return Freshness::stale;
  return Freshness::present;
}

Freshness freshness_of(const manifest::Catalogue& ops, const store::PackedCubin& cubin) {
  const manifest::Op* op = ops.op(cubin.op);
  if (op == nullptr || cubin.source_digest.empty()) return Freshness::unknown;
  jit::Specialisation code;
  code.op = op->name;
  code.folder = op->folder;
  code.files = op->files;
  code.name_expressions = store::words_from_json(cubin.name_expressions);  // the row was checked
  const auto is_of = [&](const std::string& entry, bool toolkit_headers) {
    code.entry = entry;
    code.toolkit_headers = toolkit_headers;
    try {
      return jit::is_present_code(code, cubin.source_digest);
    } catch (const Error&) {  // sources that would be refused
      return false;
    }
  };
  const bool is_present = is_of(op->reference_source, op->reference_toolkit_headers) ||
                          std::ranges::any_of(op->implementations, [&](const manifest::Implementation& each) {
                            return each.has_kernels() && is_of(each.source, each.toolkit_headers);
                          });
  return is_present ? Freshness::present : Freshness::stale;
}

}  // namespace kiln::answer
