#include "cli/workload_selection.hpp"

#include <algorithm>
#include <map>

#include "answer/serving.hpp"
#include "jit/specialisation.hpp"
#include "tune/deployment.hpp"

namespace kiln::cli {
namespace {

using Records = std::map<std::string, store::Record>;

Records records_of(store::File& file, const store::Selection& selection) {
  Records records;
  for (store::Record& record : file.records(selection.op))
    if (selection.device_class.empty() || manifest::is_of_class(record.device_class, selection.device_class))
      records.emplace(record.key, std::move(record));
  return records;
}

std::vector<manifest::DeviceFacts> devices_of(const Records& records) {
  std::set<std::string> classes;
  for (const auto& [key, record] : records) classes.insert(record.device_class);
  std::vector<manifest::DeviceFacts> devices;
  for (const std::string& each : classes)
    if (const auto facts = manifest::DeviceFacts::from_device_class(each)) devices.push_back(*facts);
  return devices;
}

std::vector<tune::DeployedBucket> buckets_in(const Records& records, std::span<const manifest::Bucket> buckets) {
  std::vector<tune::DeployedBucket> found;
  for (const manifest::Bucket& bucket : buckets) {
    tune::DeployedBucket& each = found.emplace_back(tune::DeployedBucket{bucket, std::nullopt, false, {}});
    const auto record = records.find(bucket.key());
    if (record != records.end() && answer::servings_of(bucket, record->second).any()) each.record = record->second;
  }
  return found;
}

/// Returns every architecture whose code jit::default_arch may choose for this compute capability.
std::vector<std::string> archs_for(std::int64_t sm) {
  const std::string own = "sm_" + std::to_string(sm);
  std::vector<std::string> archs{own, own + "a", own + "f"};
  for (std::int64_t older = sm - 1; older >= sm / 10 * 10; --older) archs.push_back("sm_" + std::to_string(older));
  return archs;
}

struct Selecting {
  Selecting(std::span<const OpBucket> wanted, const Records& held, std::vector<std::string> by)
      : buckets(wanted), records(held), compilers(std::move(by)) {}

  void add(const manifest::DeviceFacts& device) {
    std::vector<bool> covered(buckets.size(), false);
    for (const Regime regime : {Regime::cold_l2, Regime::hot_l2}) {
      const auto found = buckets_in(records, manifest::buckets_on(buckets, device, regime));
      bool any = regime == Regime::cold_l2;  // this regime's stand-ins serve when no record does
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (!found[i].record) continue;
        any = covered[i] = true;
        record_keys.insert(found[i].record->key);
      }
      if (any) add_cubins(found, device.sm());
    }
    coverage.buckets += static_cast<std::int64_t>(buckets.size());
    coverage.missing += std::count(covered.begin(), covered.end(), false);
  }
  void add_cubins(std::span<const tune::DeployedBucket> found, std::int64_t sm) {
    if (compilers.empty()) return;
    for (const std::string& arch : archs_for(sm))
      for (const jit::Specialisation& needed : tune::needed_specialisations(found, arch))
        for (const std::string& compiler : compilers) {
          cubin_keys.insert(jit::cubin_key(needed, compiler));
          if (const auto earlier = jit::cubin_key_over_text(needed, compiler)) cubin_keys.insert(*earlier);
        }
  }

  std::span<const OpBucket> buckets;
  const Records& records;
  std::vector<std::string> compilers;
  std::set<std::string> record_keys;
  std::set<manifest::Digest> cubin_keys;
  WorkloadCoverage coverage;
};

}  // namespace

WorkloadCoverage select_workload(store::File& file, std::span<const OpBucket> buckets, store::Selection& selection) {
  const Records records = records_of(file, selection);
  Selecting selecting(buckets, records, selection.cubins ? file.compilers() : std::vector<std::string>());
  const auto devices = devices_of(records);
  for (const manifest::DeviceFacts& device : devices) selecting.add(device);
  auto coverage = selecting.coverage;
  if (devices.empty()) coverage.missing = coverage.buckets = static_cast<std::int64_t>(buckets.size());
  selection.record_keys = std::move(selecting.record_keys);
  selection.cubin_keys = std::move(selecting.cubin_keys);
  return coverage;
}

}  // namespace kiln::cli
