// The facts of one record.
#include "cli/record_facts.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "answer/stale.hpp"
#include "cli/report/facts.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "manifest/region.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::size_t most_times = 200;  // of one record

/// The present op that forms a record's key, with the record's device and bucket.
struct Placed {
  const manifest::Op* op = nullptr;
  manifest::DeviceFacts device;
  Problem bucket;  // upper edges
};

/// Returns nothing when no present op forms the record's key.
std::optional<Placed> place(const manifest::Catalogue& ops, const store::Record& record) {
  const manifest::Op* op = ops.op(record.op);
  const auto device = manifest::DeviceFacts::from_device_class(record.device_class);
  if (op == nullptr || !device) return std::nullopt;
  const auto bucket = manifest::parse_bucket(*op, record.bucket);
  const Regime regime = record.regime == manifest::to_string(Regime::hot_l2) ? Regime::hot_l2 : Regime::cold_l2;
  if (!bucket || manifest::Bucket({*op, *device, regime}, *bucket).key() != record.key) return std::nullopt;
  return Placed{op, *device, *bucket};
}

std::string_view name_of(answer::Freshness standing) {
  switch (standing) {
    case answer::Freshness::present: return "present";
    case answer::Freshness::stale: return "stale";
    case answer::Freshness::unknown: break;
  }
  return "unknown";
}

Json axes_of(const manifest::Op& op, const Problem& problem) {
  Json axes = Json::array();
  for (std::size_t i = 0; i < op.axes.size(); ++i) axes.push_back(problem.axes[i]);
  return axes;
}

struct Timed {
  Problem at;
  double cost_ns = 0, baseline_ns = 0;  // 0 where not known
  std::string config;
};

/// Adds the costs in the order of sizes, the upper edge last: at the upper ends of the choices' sizes, and where a
/// choice's config was timed as a candidate.
void add_times(Json& facts, const Placed& placed, const store::Record& record) {
  std::map<std::array<std::int64_t, max_axes>, Timed> times;
  std::vector<std::pair<manifest::Region, const store::Choice*>> choices;
  for (const store::Choice& each : record.choices) {
    const auto region = manifest::parse_region(*placed.op, placed.bucket, each.sizes);
    if (each.role != store::Role::fastest || !region) continue;
    choices.emplace_back(*region, &each);
    times[region->high.axes] = {region->high, each.cost_ns, 0, config_of(each)};
  }
  for (const store::TriedCandidate& each : record.candidates) {
    const auto at = manifest::parse_open_sizes(*placed.op, placed.bucket, each.sizes);
    if (!at || each.verdict != store::Verdict::ok) continue;
    Timed& timed = times[at->axes];
    timed.at = *at;
    if (each.baseline) timed.baseline_ns = each.cost_ns;
    for (const auto& [region, choice] : choices)
      if (region.contains(*placed.op, *at) && choice->implementation == each.implementation &&
          choice->config == each.config) {
        timed.cost_ns = each.cost_ns;
        timed.config = config_of(*choice);
      }
  }
  Json listed = Json::array();
  std::size_t left_out = 0;
  const std::string at_edge = config_of(record.at_edge());
  for (auto& [sizes, timed] : times) {
    if (!(timed.cost_ns > 0)) continue;
    if (listed.size() == most_times) {
      ++left_out;
      continue;
    }
    if (timed.at == placed.bucket) timed.baseline_ns = record.baseline_ns;
    listed.push_back(
        {{"axes", axes_of(*placed.op, timed.at)}, {"cost_ns", timed.cost_ns}, {"baseline_ns", timed.baseline_ns}});
    if (timed.config != at_edge) listed.back()["config"] = clipped(timed.config);
  }
  facts["times"] = std::move(listed);
  if (left_out > 0) facts["times_left_out"] = left_out;
}

Json trials_of(const store::Record& record) {
  std::vector<double> costs_ns;                   // at the upper edge
  std::map<store::Verdict, std::int64_t> counts;  // of distinct configs
  std::string reason;                             // of the first that failed
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const store::TriedCandidate& each : record.candidates) {
    const bool is_first = seen.emplace(each.implementation, each.config).second;
    if (is_first) ++counts[each.verdict];
    if (each.verdict == store::Verdict::ok && each.cost_ns > 0 && is_at_edge(record, each))
      costs_ns.push_back(each.cost_ns);
    if (each.verdict != store::Verdict::ok && reason.empty()) reason = each.reason;
  }
  std::sort(costs_ns.begin(), costs_ns.end());
  Json verdicts = Json::object();
  for (const auto& [verdict, count] : counts) verdicts[std::string(store::to_string(verdict))] = count;
  return {{"costs_ns", costs_ns}, {"verdicts", verdicts}, {"reason", clipped(reason)}};
}

void add_place(Json& facts, const Placed& placed, double cost_ns) {
  const auto& [op, device, bucket] = placed;
  facts["bucket"] = manifest::to_string(*op, bucket);
  facts["axes"] = axes_of(*op, bucket);
  facts["lows"] = Json::array();
  for (std::size_t i = 0; i < op->axes.size(); ++i) {
    const manifest::Axis& axis = op->axes[i];
    facts["lows"].push_back(manifest::policy_of(*op, i, bucket).low(bucket.axes[i], axis.minimum, axis.maximum));
  }
  for (std::size_t i = op->selections.size(); i-- > 0;)
    if (op->selections[i].is_type()) facts["dtype"] = op->selections[i].values[bucket.selections[i]];
  const Rates rates = rates_of(*op, bucket, device, cost_ns);
  facts["bytes_per_second"] = rates.bytes_per_second;
  facts["flops_per_second"] = rates.flops_per_second;
}

}  // namespace

Json facts_of(const store::Record& record, const manifest::Catalogue& ops) {
  const double cost_ns = record.at_edge().cost_ns;
  Json facts{{"op", clipped(record.op)},
             {"bucket", clipped(record.bucket)},
             {"regime", clipped(record.regime)},
             {"standing", name_of(answer::freshness_of(ops, record))},
             {"cost_ns", cost_ns},
             {"baseline_ns", record.baseline_ns},
             {"config", clipped(config_of(record.at_edge()))},
             {"other_configs", configs_of(record).size() - 1},
             {"kiln_version", clipped(record.provenance.kiln_version)},
             {"tuned", record.provenance.unix_seconds}};
  if (const auto placed = place(ops, record)) {
    add_place(facts, *placed, cost_ns);
    add_times(facts, *placed, record);
  }
  if (!record.candidates.empty()) facts["trials"] = trials_of(record);
  return facts;
}

Json roof_of(std::string_view device_class) {
  if (device_class != h200_device_class) return nullptr;
  // bytes_per_second counts what a device copy reads and writes, as measured; the data sheet says 4.8 TB/s. Tensor
  // rates are half of the data sheet's, which hold for sparse operands. The f32 rate is that without tensor cores: f32
  // ops may not round to tf32.
  return {{"bytes_per_second", 4.3e12},
          {"bytes_from", "a measured copy"},
          {"flops_per_second",
           {{"bf16", 989e12},
            {"f16", 989e12},
            {"e4m3", 1979e12},
            {"e5m2", 1979e12},
            {"i8", 1979e12},
            {"f32", 67e12},
            {"f64", 67e12}}}};
}

std::string clipped(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  return std::string(text.substr(0, between_characters(text, most_bytes))) + "…";
}

}  // namespace kiln::cli::report
