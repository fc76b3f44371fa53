#include "tune/deployment.hpp"

#include <fmt/format.h>

#include <set>

#include "answer/machine_code.hpp"
#include "answer/resolver.hpp"
#include "answer/serving.hpp"
#include "kiln/error.hpp"
#include "store/custody.hpp"
#include "store/output_file.hpp"
#include "store/replaced_file.hpp"
#include "store/transfer.hpp"
#include "tune/verification_code.hpp"

namespace kiln::tune {
namespace {

std::vector<DeployedBucket> deployed_buckets(std::span<const manifest::Bucket> buckets, store::Layers& layers) {
  std::vector<DeployedBucket> deployed;
  for (const manifest::Bucket& bucket : buckets) {
    answer::Resolution found = answer::resolve(bucket, bucket.edge, layers, false);
    DeployedBucket& each = deployed.emplace_back(DeployedBucket{bucket, std::nullopt, found.is_stale(), {}});
    if (found.is_hit()) {
      each.record = std::move(found.record->value);
      continue;
    }
    each.missing = found.unusable.empty() ? "no record" : "its record cannot serve: " + found.unusable;
    const std::string why_none = answer::default_for(bucket, bucket.edge).why_not;
    if (!why_none.empty()) each.missing += "; " + why_none;
  }
  return deployed;
}

struct DeployedCubins {
  std::vector<store::CubinRow> rows;
  std::int64_t compiled = 0;  // the others came from the files
};

/// Finds the cubins in the files, else compiles them and stores them in the overlay.
DeployedCubins bring_cubins(std::span<const jit::Specialisation> needed, answer::Cubins& cubins, jit::CompilePool& pool,
                            const std::function<bool()>& stop_requested,
                            const std::function<void(const CompileStep&)>& on_step) {
  for (const jit::Specialisation& each : needed) cubins.prefetch_serving(each, {});
  DeployedCubins result;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (on_step) on_step({needed[i].label, static_cast<std::int64_t>(i), static_cast<std::int64_t>(needed.size())});
    if (stop_requested && stop_requested()) {
      pool.cancel();
      throw Error(ErrorKind::interrupted, fmt::format("interrupted after cubin {} of {}", i, needed.size()));
    }
    const answer::KeyedCubin cubin = cubins.get_serving_and_keep(needed[i]);
    if (!cubin.layer) ++result.compiled;
    result.rows.push_back(answer::to_row(needed[i], cubin));
  }
  return result;
}

void write_deployment(const std::filesystem::path& path, std::span<const DeployedBucket> buckets,
                      std::span<const store::CubinRow> cubins, bool replace) {
  std::vector<store::Record> records;
  for (const DeployedBucket& bucket : buckets)
    if (bucket.record) records.push_back(*bucket.record);
  const auto gathered = store::File::in_memory();
  gathered->put_all(records, cubins);
  store::export_file(*gathered, path, {.must_lose_nothing = !replace}, true);
}

}  // namespace

std::vector<jit::Specialisation> needed_specialisations(std::span<const DeployedBucket> buckets,
                                                        const std::string& arch) {
  // The deployment answers from its own records alone.
  store::Layers shipped{{}};
  for (const DeployedBucket& each : buckets)
    if (each.record) shipped.put_all({&*each.record, 1}, {});
  std::vector<jit::Specialisation> needed;
  std::set<manifest::Digest> seen;
  const auto add = [&](std::vector<jit::Specialisation> specialisations) {
    for (jit::Specialisation& each : specialisations)
      if (seen.insert(jit::cubin_key(each, "any compiler")).second) needed.push_back(std::move(each));
  };
  for (const DeployedBucket& bucket : buckets) {
    const answer::Resolution answers = answer::resolve(bucket.of, bucket.of.edge, shipped);
    if (answers.answers.empty()) continue;  // nothing can be launched there, nor verified
    add(answer::code_needed(answers, arch));
    add(verification(bucket.of, arch));
  }
  return needed;
}

void check_replaced(const std::filesystem::path& path, std::span<const manifest::Bucket> buckets) {
  std::set<std::string> keys;
  for (const manifest::Bucket& each : buckets) keys.insert(each.key());
  store::require_nothing_lost(path, store::RecordFormat::sealed, keys);
}

Deployment deploy(std::span<const manifest::OpBucket> buckets, const std::filesystem::path& path,
                  const DeploymentPlace& place) {
  const auto asked = manifest::buckets_on(buckets, place.device, place.regime);
  if (!path.empty()) store::check_target(store::literal_path(path), store::Existing::replace);  // before the work
  if (!path.empty() && !place.replace) check_replaced(path, asked);
  const auto deployed = deployed_buckets(asked, place.layers);
  const auto needed = needed_specialisations(deployed, place.arch);
  const DeployedCubins made = bring_cubins(needed, place.cubins, place.pool, place.stop_requested, place.on_step);
  if (!path.empty()) write_deployment(path, deployed, made.rows, place.replace);
  Deployment result;
  result.device_class = place.device.device_class();
  result.arch = place.arch;
  result.buckets = static_cast<std::int64_t>(buckets.size());
  result.cubins = static_cast<std::int64_t>(made.rows.size());
  result.compiled = made.compiled;
  for (const DeployedBucket& each : deployed) {
    if (each.stale) ++result.stale;
    if (!each.record)
      result.missing.push_back({each.of.op->name, manifest::to_string(*each.of.op, each.of.edge), each.missing});
  }
  for (const store::CubinRow& row : made.rows) result.image_bytes += static_cast<std::int64_t>(row.image.size());
  return result;
}

}  // namespace kiln::tune
