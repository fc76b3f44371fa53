#include "cli/replay_dry.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/lookup.hpp"
#include "jit/executable.hpp"

namespace kiln::cli {
namespace {

bool in_files(store::Layers& layers, std::span<const std::string> compilers,
              const jit::Specialisation& specialisation) {
  if (specialisation.is_library()) return !jit::library_identity(specialisation.library).empty();
  return std::any_of(compilers.begin(), compilers.end(), [&](const std::string& compiler) {
    return layers.find_cubin(jit::cubin_key(specialisation, compiler)).has_value();
  });
}

using BucketName = std::pair<const spec::Op*, std::string>;

struct Known {
  DryBucket bucket;
  engine::Lookup lookup;
};

Known look_up_bucket(const TraceEntry& entry, const Target& target, Regime regime, store::Layers& layers,
                     std::span<const std::string> compilers) {
  Known known;
  known.lookup = engine::look_up(*entry.op, entry.problem, target.facts, regime, layers);
  const engine::Lookup& lookup = known.lookup;
  known.bucket = {entry.op,     lookup.bucket, lookup.origin, lookup.implementation != nullptr,
                  lookup.stale, false,         lookup.miss,   0};
  if (lookup.implementation == nullptr) return known;
  const auto has_cubin = [&](const Problem& at, const spec::Implementation& implementation,
                             const spec::Config& config) {
    const auto frame = spec::make_frame(*entry.op, &implementation, at, target.facts, config);
    return in_files(layers, compilers, jit::specialise(*entry.op, implementation, frame, target.arch));
  };
  const auto has_code = [&](const engine::Lookup& part) {
    if (has_cubin(part.bucket, *part.implementation, part.config)) return true;
    // Of a library that is not here.
    return part.runner_up && part.implementation->is_library() &&
           has_cubin(part.runner_up->at, *part.runner_up->usable.implementation, part.runner_up->usable.config);
  };
  known.bucket.cubin_in_files = has_code(lookup) && std::ranges::all_of(lookup.refinements, [&](const auto& lower) {
                                  return has_code(engine::lower_part(lookup, lower));
                                });
  return known;
}

}  // namespace

DryReport look_up_trace(std::span<const TraceEntry> trace, const Target& target, Regime regime, store::Layers& layers) {
  const std::vector<std::string> compilers = layers.compilers();
  std::map<BucketName, Known> known;
  DryReport report;
  for (const TraceEntry& entry : trace) {
    const BucketName name{entry.op, spec::to_string(*entry.op, spec::bucket_of(*entry.op, entry.problem))};
    auto found = known.find(name);
    if (found == known.end())
      found = known.emplace(name, look_up_bucket(entry, target, regime, layers, compilers)).first;
    ++found->second.bucket.problems;
    const engine::Lookup& lookup = found->second.lookup;
    const tune::Refinement* lower = tune::covering(*entry.op, lookup.refinements, entry.problem);
    const auto* implementation = lower != nullptr ? lower->usable.implementation : lookup.implementation;
    const spec::Config& config = lower != nullptr ? lower->usable.config : lookup.config;
    if (implementation != nullptr &&
        spec::broken_constraint(*entry.op, *implementation, entry.problem, target.facts, config))
      ++report.constraint_fallbacks;
  }
  for (auto& [name, each] : known) report.buckets.push_back(each.bucket);
  std::sort(report.buckets.begin(), report.buckets.end(), [](const DryBucket& a, const DryBucket& b) {
    return std::tie(a.op->name, a.bucket.selections, a.bucket.axes) <
           std::tie(b.op->name, b.bucket.selections, b.bucket.axes);
  });
  return report;
}

}  // namespace kiln::cli
