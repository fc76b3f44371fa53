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

/// One bucket of a deployment. Without a record, another bucket's config or the op's default stands in (MissPolicy::nearest).
struct DeployedBucket {
  OpBucket of;
  std::optional<store::Record> record;
  std::vector<tune::Refinement> refinements;  // of the record: configs of the bucket's lower parts
  bool stale = false;
  std::string missing;  // why there is no record, or empty
};

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
