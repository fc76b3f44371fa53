// Writes buckets as a workload file (cli/workload.hpp reads it).
#pragma once

#include <span>
#include <string>

#include "manifest/op_bucket.hpp"

namespace kiln::manifest {

/// Returns a [[workload]] for each set of buckets that differ on one axis alone, in the order of the first of each.
/// Types and choices at their defaults are left out. Empty for no buckets.
std::string workload_text(std::span<const OpBucket> buckets);

}  // namespace kiln::manifest
