// From files to values. Candidates are read record by record, so that memory stays bounded.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_set>

#include "cli/record_facts.hpp"
#include "cli/report/content.hpp"
#include "manifest/region.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::size_t most_with_trials = 1000;

bool passes(const Filter& filter, const store::Record& record) {
  return (filter.op.empty() || filter.op == record.op) &&
         (filter.device_class.empty() || filter.device_class == record.device_class);
}

double amount(const manifest::Expression& expression, std::span<const std::int64_t> frame) {
  const manifest::Value value = expression.evaluate(frame);
  return value.ok() && value.number > 0 ? static_cast<double>(value.number) : 0.0;
}

/// What the present ops make of a record.
void place(Entry& entry, std::span<const manifest::Op> ops) {
  entry.standing = engine::standing_of(ops, entry.record);
  const auto op =
      std::find_if(ops.begin(), ops.end(), [&](const manifest::Op& each) { return each.name == entry.record.op; });
  const auto device = manifest::DeviceFacts::from_device_class(entry.record.device_class);
  if (op == ops.end() || !device) return;
  const auto bucket = manifest::parse_bucket(*op, entry.record.bucket);
  const Regime regime = entry.record.regime == manifest::to_string(Regime::hot_l2) ? Regime::hot_l2 : Regime::cold_l2;
  if (!bucket || manifest::record_key(*op, *bucket, *device, regime) != entry.record.key) return;
  entry.op = &*op;
  entry.device = *device;
  entry.bucket = *bucket;
  const auto frame = manifest::make_frame(*op, nullptr, *bucket, *device);
  entry.bytes = amount(op->cost_bytes, frame);
  entry.flops = amount(op->cost_flops, frame);
}

/// Choices give the time at the upper ends of their sizes, candidates that at other sizes too.
void take_times(Entry& entry, std::span<const store::Candidate> candidates) {
  if (entry.op == nullptr) return;
  std::map<std::array<std::int64_t, max_axes>, TimedSizes> times;
  std::vector<std::pair<manifest::Region, const store::Choice*>> choices;
  for (const store::Choice& each : entry.record.choices) {
    const auto region = manifest::parse_region(*entry.op, entry.bucket, each.sizes);
    if (each.role != store::Role::fastest || !region) continue;
    choices.emplace_back(*region, &each);
    times[region->high.axes] = {region->high, each.cost_ns, 0, config_of(each)};
  }
  for (const store::Candidate& each : candidates) {
    const auto at = manifest::parse_open_sizes(*entry.op, entry.bucket, each.sizes);
    if (!at || each.verdict != store::Verdict::ok) continue;
    TimedSizes& timed = times[at->axes];
    timed.at = *at;
    if (each.baseline) timed.baseline_ns = each.cost_ns;
    for (const auto& [region, choice] : choices)
      if (region.contains(*entry.op, *at) && choice->implementation == each.implementation &&
          choice->config == each.config) {
        timed.cost_ns = each.cost_ns;
        timed.config = config_of(*choice);
      }
  }
  for (auto& [sizes, timed] : times) {
    if (timed.at == entry.bucket) timed.baseline_ns = entry.record.baseline_ns;
    if (timed.cost_ns > 0) entry.times.push_back(std::move(timed));
  }
}

void take_records(Content& content, store::Layers& layers, const Filter& filter) {
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < layers.layers().size(); ++i) {
    const store::Layer& layer = layers.layers()[i];
    if (!layer.file) continue;
    for (store::Record& record : layer.file->records(filter.op)) {
      if (!passes(filter, record)) continue;
      if (!seen.insert(record.key).second) {
        ++content.hidden;
        continue;
      }
      content.entries.emplace_back().record = std::move(record);
      content.entries.back().source = i;
    }
  }
  std::sort(content.entries.begin(), content.entries.end(),
            [](const Entry& a, const Entry& b) { return reads_before(a.record.key, b.record.key); });
}

void take_trials(Entry& entry, store::File& file) {
  const auto record = file.find_record(entry.record.key, true);
  take_times(entry,
             record ? std::span<const store::Candidate>(record->candidates) : std::span<const store::Candidate>());
  if (!record || record->candidates.empty()) return;
  Trials trials;
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const store::Candidate& each : record->candidates) {
    const bool is_first = seen.emplace(each.implementation, each.config).second;
    if (is_first) ++trials.verdicts[static_cast<std::size_t>(each.verdict)];
    if (each.verdict == store::Verdict::ok && each.cost_ns > 0 && is_at_edge(entry.record, each))
      trials.costs_ns.push_back(each.cost_ns);
    if (each.verdict != store::Verdict::ok && trials.reason.empty()) trials.reason = each.reason;
  }
  std::sort(trials.costs_ns.begin(), trials.costs_ns.end());
  entry.trials = std::move(trials);
}

/// The name that most records of a class give, the smaller one of two.
std::map<std::string, std::string> device_names(const std::vector<Entry>& entries) {
  std::map<std::string, std::map<std::string, std::int64_t>> votes;
  for (const Entry& entry : entries) ++votes[entry.record.device_class][entry.record.provenance.device_name];
  std::map<std::string, std::string> names;
  for (const auto& [device_class, counts] : votes) {
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    names[device_class] = most->first.empty() ? device_class : most->first;
  }
  return names;
}

void take_counts(Content& content, store::Layers& layers) {
  for (const store::Layer& layer : layers.layers()) {
    if (!layer.file) continue;
    for (const store::Usage& row : layer.file->usage()) {
      if (row.source == "launch") content.launches[row.key] += row.uses;
      if (row.source == "miss") content.misses[row.key] += row.uses;
    }
  }
}

/// The devices whose records a launch can miss: the one that was asked for, else the one that is here, else all in the files.
std::vector<manifest::DeviceFacts> devices_asked(const Content& content, const Filter& filter) {
  std::vector<manifest::DeviceFacts> devices;
  const std::string& one = filter.device_class.empty() ? filter.present_device : filter.device_class;
  const auto add = [&](const std::string& device_class) {
    if (const auto device = manifest::DeviceFacts::from_device_class(device_class)) devices.push_back(*device);
  };
  if (!one.empty()) add(one);
  if (one.empty())
    for (const auto& [device_class, name] : content.devices) add(device_class);
  return devices;
}

void take_missing(Content& content, store::Layers& layers, const Filter& filter) {
  std::unordered_set<std::string> keys;
  for (const Entry& entry : content.entries) keys.insert(entry.record.key);
  const auto devices = devices_asked(content, filter);
  std::map<std::pair<std::string, std::string>, Missing> missing;
  for (const store::Layer& layer : layers.layers()) {
    if (!layer.file) continue;
    for (const store::HistogramRow& row : layer.file->histogram()) {
      if (!filter.op.empty() && row.op != filter.op) continue;
      ++content.counted_problems;
      const auto op = std::find_if(content.ops.begin(), content.ops.end(),
                                   [&](const manifest::Op& each) { return each.name == row.op; });
      const auto problem = op == content.ops.end() ? std::nullopt : manifest::parse_bucket(*op, row.problem);
      if (!problem) {
        ++content.unreadable_problems;
        continue;
      }
      const Problem bucket = manifest::bucket_of(*op, *problem);
      const auto has_it = [&](const manifest::DeviceFacts& device) {
        return keys.contains(manifest::record_key(*op, bucket, device, Regime::cold_l2)) ||
               keys.contains(manifest::record_key(*op, bucket, device, Regime::hot_l2));
      };
      if (std::any_of(devices.begin(), devices.end(), has_it)) continue;
      Missing& each = missing[{row.op, manifest::to_string(*op, bucket)}];
      each = {row.op, manifest::to_string(*op, bucket), each.launches + row.launches, each.problems + 1};
    }
  }
  for (auto& [key, each] : missing) content.missing.push_back(std::move(each));
  std::stable_sort(content.missing.begin(), content.missing.end(),
                   [](const Missing& a, const Missing& b) { return a.launches > b.launches; });
}

}  // namespace

Content gather(std::vector<manifest::Op> ops, store::Layers& layers, const std::vector<std::string>& names,
               const Filter& filter) {
  Content content;
  content.ops = std::move(ops);
  for (std::size_t i = 0; i < layers.layers().size(); ++i) {
    const store::Layer& layer = layers.layers()[i];
    const std::string path = layer.path.empty() ? "(in memory)" : layer.path.string();
    content.sources.push_back({i < names.size() && !names[i].empty() ? names[i] : path,
                               layer.kind == store::LayerKind::overlay, layer.refused,
                               layer.file ? layer.file->stats() : store::FileStats{}});
  }
  take_records(content, layers, filter);
  for (std::size_t i = 0; i < content.entries.size(); ++i) {
    place(content.entries[i], content.ops);
    if (i < most_with_trials)
      take_trials(content.entries[i], *layers.layers()[content.entries[i].source].file);
    else
      take_times(content.entries[i], {});
  }
  content.devices = device_names(content.entries);
  if (!filter.device_class.empty()) content.devices.try_emplace(filter.device_class, filter.device_class);
  take_counts(content, layers);
  take_missing(content, layers, filter);
  return content;
}

}  // namespace kiln::cli::report
