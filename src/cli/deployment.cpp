#include "cli/deployment.hpp"

#include <fmt/format.h>

#include <set>

#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/units.hpp"
#include "engine/lookup.hpp"
#include "kiln/error.hpp"
#include "store/transfer.hpp"
#include "tune/deploy.hpp"

namespace kiln::cli {
namespace {

constexpr int bar_width = 30;

/// A bar on a terminal; elsewhere a line for each tenth.
class CompileProgress {
 public:
  CompileProgress(const Globals& globals, std::size_t total)
      : total_(total),
        plain_(!globals.json && !globals.quiet && !is_terminal()),
        line_(!globals.json && !globals.quiet && is_terminal()) {}

  void on(std::size_t done, const std::string& label) {
    const double seconds = seconds_now() - begun_;
    const double left = done > 0 ? seconds / static_cast<double>(done) * static_cast<double>(total_ - done) : 0;
    line_.show(fmt::format("machine code {} {}/{}  {} left  {}",
                           bar(static_cast<double>(done), static_cast<double>(total_), bar_width), done, total_,
                           format_wait(left), label));
    const std::size_t tenth = 10 * done / total_;
    if (!plain_ || tenth == tenth_) return;
    tenth_ = tenth;
    note(fmt::format("machine code {}/{}, {} left", done, total_, format_wait(left)));
  }

 private:
  std::size_t total_;
  bool plain_;
  std::size_t tenth_ = 0;
  double begun_ = seconds_now();
  StatusLine line_;
};

/// The records of which one may stand in for a bucket without: any of its op and types, a config once.
std::vector<const store::Record*> stand_ins(const DeployedBucket& bucket, std::span<const DeployedBucket> buckets) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  std::vector<const store::Record*> records;
  const auto add = [&](const store::Record& record) {
    if (seen.emplace(record.implementation, record.config).second) records.push_back(&record);
  };
  for (const DeployedBucket& other : buckets) {
    if (other.of.op != bucket.of.op || other.of.bucket.selections != bucket.of.bucket.selections || !other.record)
      continue;
    add(*other.record);
    for (const SpareRecord& spare : other.spares) add(spare.record);
  }
  return records;
}

}  // namespace

std::vector<DeployedBucket> deployed_buckets(std::span<const OpBucket> buckets, const spec::DeviceFacts& device,
                                             Regime regime, store::Layers& layers) {
  std::vector<DeployedBucket> deployed;
  for (const OpBucket& bucket : buckets) {
    engine::Lookup lookup = engine::look_up(*bucket.op, bucket.bucket, device, regime, layers, false);
    DeployedBucket each{bucket, std::nullopt, std::move(lookup.refinements), {}, lookup.stale, {}};
    add_spares(each.spares, bucket.bucket, lookup);
    for (const tune::Refinement& lower : each.refinements) add_spares(each.spares, lower.at, lower);
    if (lookup.is_hit())
      each.record = std::move(lookup.record->value);
    else
      each.missing =
          lookup.record_unusable.empty() ? "no record" : "its record cannot serve: " + lookup.record_unusable;
    deployed.push_back(std::move(each));
  }
  return deployed;
}

std::vector<jit::Specialisation> needed_specialisations(std::span<const DeployedBucket> buckets,
                                                        const spec::DeviceFacts& device, const std::string& arch) {
  std::vector<jit::Specialisation> needed;
  std::set<spec::Digest> seen;
  const auto add = [&](std::vector<jit::Specialisation> specialisations) {
    for (jit::Specialisation& each : specialisations)
      if (seen.insert(jit::cubin_key(each, "any compiler")).second) needed.push_back(std::move(each));
  };
  for (const DeployedBucket& bucket : buckets) {
    const auto& [op, problem] = bucket.of;
    add(tune::deployed(*op, problem, device, arch, bucket.record ? &*bucket.record : nullptr));
    add(tune::verification(*op, problem, device, arch));
    for (const tune::Refinement& lower : bucket.refinements)
      add(tune::deployed(*op, lower.at, device, arch, &lower.record));
    for (const SpareRecord& spare : bucket.spares) add(tune::deployed(*op, spare.at, device, arch, &spare.record));
    if (bucket.record) continue;
    for (const store::Record* each : stand_ins(bucket, buckets)) add(tune::deployed(*op, problem, device, arch, each));
  }
  return needed;
}

DeployedCubins bring_cubins(const Globals& globals, std::span<const jit::Specialisation> needed, tune::Cubins& cubins,
                            jit::CompilePool& pool) {
  const Interrupt interrupt;
  for (const jit::Specialisation& each : needed) cubins.prefetch(each);
  CompileProgress progress(globals, needed.size());
  DeployedCubins result;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    progress.on(i, needed[i].label);
    if (Interrupt::requested()) {
      pool.cancel();
      throw Error(ErrorKind::interrupted,
                  fmt::format("interrupted with {} of {} cubins made; they are kept, and the same command continues", i,
                              needed.size()));
    }
    const tune::KeyedCubin cubin = cubins.get_and_keep(needed[i]);
    if (!cubin.from_store) ++result.compiled;
    result.rows.push_back(tune::to_row(needed[i], cubin));
  }
  return result;
}

void write_deployment(const std::filesystem::path& path, std::span<const DeployedBucket> buckets,
                      std::span<const store::CubinRow> cubins) {
  std::vector<store::Record> records;
  for (const DeployedBucket& bucket : buckets) {
    if (bucket.record) records.push_back(*bucket.record);
    for (const tune::Refinement& lower : bucket.refinements) records.push_back(lower.record);
    for (const SpareRecord& spare : bucket.spares) records.push_back(spare.record);
  }
  const auto gathered = store::File::in_memory();
  gathered->put_all(records, cubins);
  store::export_file(*gathered, path, {}, true);
}

}  // namespace kiln::cli
