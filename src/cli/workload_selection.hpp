// Which rows of a file a workload needs.
#pragma once

#include <span>

#include "cli/workload.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {

/// Over the device classes that the file holds records for, or the one that the selection names.
struct WorkloadCoverage {
  std::int64_t buckets = 0;
  std::int64_t missing = 0;  // without a record that can serve
};

/// Narrows `selection` to the records of these buckets, and, unless it leaves cubins out, to the machine code that launching
/// and verifying them can need, for every compiler that the file names.
WorkloadCoverage select_workload(store::File& file, std::span<const OpBucket> buckets, store::Selection& selection);

}  // namespace kiln::cli
