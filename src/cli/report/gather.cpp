// Reads the files into one document. Candidates are read record by record, and lists are limited, so that memory and
// page stay bounded.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "cli/bucket_shapes.hpp"
#include "cli/build.hpp"
#include "cli/record_facts.hpp"
#include "cli/report/facts.hpp"
#include "cli/target.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::size_t most_records = 5'000, most_candidates = 100'000, most_missing = 200, most_uses = 20,
                      most_gaps = 200;

using FoundRecord = store::Found<store::Record>;

Json source_facts(const store::Layer& layer, const std::string& name) {
  const std::string path = layer.path.empty() ? "(in memory)" : layer.path.string();
  Json facts{{"name", clipped(name.empty() ? path : name)}, {"overlay", layer.kind == store::LayerKind::overlay}};
  if (!layer.refused.empty()) facts["refused"] = clipped(layer.refused, 300);
  const store::FileStats stats = layer.file ? layer.file->stats() : store::FileStats{};
  facts.update({{"records", stats.records},
                {"candidates", stats.candidates},
                {"cubins", stats.cubins},
                {"bytes", stats.file_bytes}});
  return facts;
}

Json op_facts(const manifest::Op& op) {
  Json facts{{"name", op.name}, {"summary", clipped(op.summary)}, {"axes", Json::array()}};
  for (const manifest::Axis& axis : op.axes) facts["axes"].push_back({{"name", axis.name}});
  return facts;
}

/// Returns, in the order of keys, the first layer's record of each key that passes the filter. `hidden` counts the
/// later layers' records.
std::vector<FoundRecord> find_records(store::Layers& layers, const Filter& filter, std::int64_t& hidden) {
  std::vector<FoundRecord> found;
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < layers.layers().size(); ++i) {
    const store::Layer& layer = layers.layers()[i];
    if (!layer.file) continue;
    for (store::Record& record : layer.file->records(filter.op)) {
      if (!filter.op.empty() && filter.op != record.op) continue;
      if (!filter.device_class.empty() && !manifest::is_of_class(record.device_class, filter.device_class)) continue;
      if (seen.insert(record.key).second)
        found.push_back({std::move(record), i});
      else
        ++hidden;
    }
  }
  std::sort(found.begin(), found.end(),
            [](const FoundRecord& a, const FoundRecord& b) { return reads_before(a.value.key, b.value.key); });
  return found;
}

/// Maps each device class to the name that most of its records give; of equally frequent names, to the first in order.
std::map<std::string, std::string> device_names(const std::vector<FoundRecord>& found) {
  std::map<std::string, std::map<std::string, std::int64_t>> votes;
  for (const FoundRecord& each : found) ++votes[each.value.device_class][each.value.provenance.device_name];
  std::map<std::string, std::string> names;
  for (const auto& [device_class, counts] : votes) {
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    names[device_class] = most->first.empty() ? device_class : most->first;
  }
  return names;
}

void add_records(Json& document, store::Layers& layers, const manifest::Catalogue& ops, std::vector<FoundRecord>& found,
                 const std::map<std::string, std::size_t>& devices) {
  const std::size_t shown = std::min(found.size(), most_records);
  document["records_left_out"] = found.size() - shown;
  std::size_t candidates = most_candidates, unread = 0;
  for (std::size_t i = 0; i < shown; ++i) {
    auto& [record, layer] = found[i];
    if (candidates == 0)
      ++unread;
    else if (auto whole = layers.layers()[layer].file->find_record(record.key, true))
      record.candidates = std::move(whole->candidates);
    if (record.candidates.size() > candidates) {
      record.candidates.clear();
      candidates = 0;
      ++unread;
    }
    candidates -= record.candidates.size();
    Json facts = facts_of(record, ops);
    facts["device"] = devices.at(record.device_class);
    facts["source"] = layer;
    document["records"].push_back(std::move(facts));
    record.candidates = {};
  }
  document["candidates_unread"] = unread;
}

/// Counts of launches or of misses, as `source` says, by name.
Json uses_of(store::Layers& layers, std::string_view source) {
  std::map<std::string, std::int64_t> counts;
  double total = 0;
  for (const store::Layer& layer : layers.layers()) {
    if (!layer.file) continue;
    for (const store::Usage& row : layer.file->usage()) {
      if (row.source != source) continue;
      counts[row.key] = store::capped_sum(counts[row.key], row.uses);
      total += static_cast<double>(row.uses);
    }
  }
  std::vector<std::pair<std::string, std::int64_t>> most(counts.begin(), counts.end());
  std::stable_sort(most.begin(), most.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (most.size() > most_uses) most.resize(most_uses);
  for (auto& [name, count] : most) name = clipped(name);
  return {{"total", total}, {"most", most}};
}

/// The devices whose records a launch can miss: the filter's, else the one that is present, else all of the files.
std::vector<manifest::DeviceFacts> devices_asked(const std::map<std::string, std::size_t>& classes,
                                                 const Filter& filter) {
  std::vector<manifest::DeviceFacts> devices;
  const auto add = [&](const std::string& device_class) {
    if (const auto device = manifest::DeviceFacts::from_device_class(device_class)) devices.push_back(*device);
  };
  const std::string& one = filter.device_class.empty() ? filter.present_device : filter.device_class;
  if (!one.empty())
    add(one);
  else
    for (const auto& [device_class, number] : classes) add(device_class);
  return devices;
}

std::unordered_set<std::string_view> keys_of(const std::vector<FoundRecord>& found) {
  std::unordered_set<std::string_view> keys;
  for (const FoundRecord& each : found) keys.insert(each.value.key);
  return keys;
}

bool has_record(const std::unordered_set<std::string_view>& keys, const manifest::OpBucket& bucket,
                const manifest::DeviceFacts& device) {
  return keys.contains(bucket.on(device, Regime::cold_l2).key()) ||
         keys.contains(bucket.on(device, Regime::hot_l2).key());
}

/// A bucket that was launched and has no record.
struct MissingBucket {
  std::string op, bucket;
  std::int64_t launches = 0;
  std::int64_t sizes = 0;  // distinct problems
};

void add_missing(Json& document, store::Layers& layers, const manifest::Catalogue& ops,
                 const std::vector<FoundRecord>& found, const std::vector<manifest::DeviceFacts>& devices,
                 const Filter& filter) {
  const auto keys = keys_of(found);
  std::int64_t counted = 0, unreadable = 0;
  std::map<std::pair<std::string, std::string>, MissingBucket> by_bucket;
  for (const store::Layer& layer : layers.layers()) {
    if (!layer.file) continue;
    for (const store::HistogramRow& row : layer.file->histogram()) {
      if (!filter.op.empty() && row.op != filter.op) continue;
      ++counted;
      const manifest::Op* op = ops.op(row.op);
      const auto problem = op == nullptr ? std::nullopt : manifest::parse_bucket(*op, row.problem);
      if (!problem) {
        ++unreadable;
        continue;
      }
      const Problem bucket = manifest::bucket_of(*op, *problem);
      const auto serves = [&](const manifest::DeviceFacts& device) { return has_record(keys, {op, bucket}, device); };
      if (std::any_of(devices.begin(), devices.end(), serves)) continue;
      MissingBucket& each = by_bucket[{row.op, manifest::to_string(*op, bucket)}];
      each = {row.op, manifest::to_string(*op, bucket), store::capped_sum(each.launches, row.launches), each.sizes + 1};
    }
  }
  std::vector<MissingBucket> missing;
  for (auto& [key, each] : by_bucket) missing.push_back(std::move(each));
  std::stable_sort(missing.begin(), missing.end(),
                   [](const MissingBucket& a, const MissingBucket& b) { return a.launches > b.launches; });
  document["problems"] = {{"counted", counted}, {"unreadable", unreadable}};
  document["missing"] = {{"found", missing.size()}, {"most_launched", Json::array()}};
  if (missing.size() > most_missing) missing.resize(most_missing);
  for (const MissingBucket& each : missing)
    document["missing"]["most_launched"].push_back(
        {{"op", each.op}, {"bucket", each.bucket}, {"launches", each.launches}, {"sizes", each.sizes}});
}

/// The workload's buckets that lack a record for some of the devices.
Json gaps_of(const Expected& expected, const std::vector<FoundRecord>& found,
             const std::vector<manifest::DeviceFacts>& devices, const Filter& filter) {
  const auto keys = keys_of(found);
  std::vector<ToldBucket> lacking;
  std::int64_t buckets = 0;
  for (const OpBucket& each : expected.buckets) {
    if (!filter.op.empty() && each.op->name != filter.op) continue;
    ++buckets;
    std::string without;
    for (const manifest::DeviceFacts& device : devices)
      if (!has_record(keys, each, device)) without += (without.empty() ? "" : ", ") + class_word(device.device_class());
    if (devices.empty()) without = "every device";
    if (!without.empty()) lacking.push_back({each, without});
  }
  Json facts{{"files", Json::array()}, {"buckets", buckets}, {"missing", lacking.size()}, {"gaps", Json::array()}};
  for (const std::string& file : expected.files) facts["files"].push_back(clipped(file));
  for (const BucketShape& each : shapes_of(lacking)) {
    if (facts["gaps"].size() == most_gaps) break;
    facts["gaps"].push_back({{"op", each.of.op->name}, {"buckets", each.buckets()}, {"devices", clipped(each.text)}});
  }
  return facts;
}

}  // namespace

Json gather(const manifest::Catalogue& ops, store::Layers& layers, std::span<const std::string> names,
            const Filter& filter, const Expected& expected) {
  std::int64_t hidden = 0;
  std::vector<FoundRecord> found = find_records(layers, filter, hidden);
  Json document{{"kiln", fmt::format("{}, build {}", KILN_VERSION, build())},
                {"records_found", found.size()},
                {"records_hidden", hidden}};
  for (const char* list : {"sources", "devices", "ops", "records"}) document[list] = Json::array();
  for (std::size_t i = 0; i < layers.layers().size(); ++i)
    document["sources"].push_back(source_facts(layers.layers()[i], i < names.size() ? names[i] : ""));
  auto device_of = device_names(found);
  if (!filter.device_class.empty()) device_of.try_emplace(filter.device_class, filter.device_class);
  std::map<std::string, std::size_t> numbers;
  for (const auto& [device_class, name] : device_of) {
    numbers[device_class] = document["devices"].size();
    document["devices"].push_back(
        {{"class", clipped(device_class)}, {"name", clipped(name)}, {"roof", roof_of(device_class)}});
  }
  for (const manifest::Op& op : ops.all()) document["ops"].push_back(op_facts(op));
  add_records(document, layers, ops, found, numbers);
  document["launches"] = uses_of(layers, "launch");
  document["misses"] = uses_of(layers, "miss");
  document["shared"] = uses_of(layers, "shared");
  const auto devices = devices_asked(numbers, filter);
  add_missing(document, layers, ops, found, devices, filter);
  if (!expected.files.empty()) document["workload"] = gaps_of(expected, found, devices, filter);
  hide_homes(document);
  return document;
}

}  // namespace kiln::cli::report
