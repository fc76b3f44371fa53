// Selects the rows of a file that a workload needs.
#pragma once

#include <span>

#include "cli/workload.hpp"
#include "store/transfer.hpp"

namespace kiln::cli {

/// Counts over the device classes of the file's records, or of the selection's device class.
struct WorkloadCoverage {
  std::int64_t buckets = 0;
  std::int64_t missing = 0;  // buckets without a record that can serve
};

/// Restricts `selection` to the records of these buckets and, unless it leaves cubins out, to the machine code that
/// launching and verifying them may need, of every compiler in the file.
WorkloadCoverage select_workload(store::File& file, std::span<const OpBucket> buckets, store::Selection& selection);

}  // namespace kiln::cli
