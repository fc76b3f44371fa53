// The contents of a file to deploy: records of some buckets, and every cubin that their launches can need. Needs no
// device.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "kiln/tuner.hpp"
#include "manifest/op_bucket.hpp"
#include "store/layers.hpp"

namespace kiln::tune {

/// One bucket of a deployment. Without a record, fallbacks serve it.
struct DeployedBucket {
  manifest::Bucket of;
  std::optional<store::Record> record;
  bool stale = false;
  std::string missing;  // why there is no record, or empty
};

/// The distinct specialisations that launching and verifying these buckets can need: those of all answers that the
/// resolver gives from their records alone, fallbacks included.
std::vector<jit::Specialisation> needed_specialisations(std::span<const DeployedBucket> buckets,
                                                        const std::string& arch);

/// Throws Error(bad_input) when the file at `path` has a record that is not of these buckets, or may not be replaced at
/// all (store/replaced_file.hpp). For use before work that takes minutes.
void check_replaced(const std::filesystem::path& path, std::span<const manifest::Bucket> buckets);

/// The device, files and compilers of a deployment, and its callbacks.
struct DeploymentPlace {
  const manifest::DeviceFacts& device;
  std::string arch;
  Regime regime = Regime::cold_l2;
  store::Layers& layers;
  answer::Cubins& cubins;
  jit::CompilePool& pool;
  bool replace = false;  // a file that exists, though it holds other records
  std::function<bool()> stop_requested{};
  std::function<void(const CompileStep&)> on_step{};
};
/// Brings all cubins of these buckets to the overlay, where a repeated call continues one that was stopped. Writes the
/// file beside `path` and renames it into place, unless `path` is empty. Throws as check_replaced does unless `replace`
/// is set, Error(interrupted), Error(no_nvrtc) and Error(compile_failed).
Deployment deploy(std::span<const manifest::OpBucket> buckets, const std::filesystem::path& path,
                  const DeploymentPlace& place);

}  // namespace kiln::tune
