// What a deployable file is made of: the records of some buckets, and every cubin that their launches can need.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/workload.hpp"
#include "store/layers.hpp"
#include "tune/cubins.hpp"
#include "tune/refinement.hpp"

namespace kiln::cli {

/// A record that serves where another one of its bucket, or of a part of it, does not.
struct SpareRecord {
  Problem at;
  store::Record record;
};

/// One bucket of a deployment. Without a record, another bucket's config or the op's default stands in (MissPolicy::nearest).
struct DeployedBucket {
  OpBucket of;
  std::optional<store::Record> record;
  std::vector<tune::Refinement> refinements;  // of the record: configs of the bucket's lower parts
  std::vector<SpareRecord> spares{};          // runner-ups, and what they serve in the place of
  bool stale = false;
  std::string missing;  // why there is no record, or empty
};

/// Of a bucket's answer, or of that for its part up to `at`.
template <class Answer>
void add_spares(std::vector<SpareRecord>& spares, const Problem& at, const Answer& answer) {
  if (answer.runner_up) spares.push_back({at, answer.runner_up->record});
  if (answer.passed_over) spares.push_back({at, *answer.passed_over});
}

std::vector<DeployedBucket> deployed_buckets(std::span<const OpBucket> buckets, const spec::DeviceFacts& device,
                                             Regime regime, store::Layers& layers);

/// The distinct specialisations that launching and verifying these buckets can need.
std::vector<jit::Specialisation> needed_specialisations(std::span<const DeployedBucket> buckets,
                                                        const spec::DeviceFacts& device, const std::string& arch);

struct DeployedCubins {
  std::vector<store::CubinRow> rows;
  std::int64_t compiled = 0;  // the others came from the files
};
/// From the files, else compiled and kept in the overlay, so that an interrupted run continues. Throws Error(interrupted),
/// Error(no_nvrtc) or Error(compile_failed).
DeployedCubins bring_cubins(const Globals& globals, std::span<const jit::Specialisation> needed, tune::Cubins& cubins,
                            jit::CompilePool& pool);

/// Writes the file beside `path` and renames it into place.
void write_deployment(const std::filesystem::path& path, std::span<const DeployedBucket> buckets,
                      std::span<const store::CubinRow> cubins);

}  // namespace kiln::cli
