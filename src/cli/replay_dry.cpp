#include "cli/replay_dry.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "answer/machine_code.hpp"

namespace kiln::cli {
namespace {

using BucketName = std::pair<const manifest::Op*, std::string>;

struct Known {
  DryBucket bucket;
  answer::Resolution found;
  std::map<const answer::Answer*, bool> has_code;  // by answer that serves a problem
};

Known look_up_bucket(const TraceEntry& entry, const Target& target, Regime regime, store::Layers& layers) {
  Known known{{}, answer::resolve({*entry.op, target.facts, regime}, entry.problem, layers), {}};
  const answer::Resolution& found = known.found;
  const bool served = !found.answers.empty();
  known.bucket = {.op = entry.op,
                  .bucket = found.bucket.edge,
                  .origin = served ? found.answers.front().origin : Origin::default_,
                  .served = served,
                  .stale = found.is_stale(),
                  .cubin_in_files = served,
                  .miss = found.miss};
  return known;
}

}  // namespace

DryReport look_up_trace(std::span<const TraceEntry> trace, const Target& target, Regime regime, store::Layers& layers) {
  std::map<BucketName, Known> known;
  DryReport report;
  for (const TraceEntry& entry : trace) {
    const BucketName name{entry.op, manifest::to_string(*entry.op, manifest::bucket_of(*entry.op, entry.problem))};
    auto place = known.find(name);
    if (place == known.end()) {
      place = known.emplace(name, look_up_bucket(entry, target, regime, layers)).first;
      const answer::Resolution& found = place->second.found;
      if (!found.is_hit()) add_missing(report.missing, {entry.op, found.bucket.edge}, nullptr, target, layers);
    }
    Known& each = place->second;
    ++each.bucket.problems;
    const answer::Answer* answer = each.found.first(entry.problem).serves;
    if (answer == nullptr) continue;
    if (each.found.is_hit() && !answer->is_hit()) ++report.constraint_fallbacks;
    const auto [code, is_new] = each.has_code.try_emplace(answer);
    if (is_new) {
      code->second = !answer->implementation->has_kernels() ||
                     answer::layer_with_code({*entry.op, target.facts}, *answer, target.arch, layers);
      if (each.found.is_hit()) add_missing(report.missing, {entry.op, each.found.bucket.edge}, answer, target, layers);
    }
    each.bucket.cubin_in_files = each.bucket.cubin_in_files && code->second;
  }
  for (auto& [name, each] : known) report.buckets.push_back(each.bucket);
  std::sort(report.buckets.begin(), report.buckets.end(), [](const DryBucket& a, const DryBucket& b) {
    return std::tie(a.op->name, a.bucket.selections, a.bucket.axes) <
           std::tie(b.op->name, b.bucket.selections, b.bucket.axes);
  });
  return report;
}

}  // namespace kiln::cli
