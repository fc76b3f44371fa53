// kiln tune --refine: splits buckets into parts that have configs of their own.
#pragma once

#include <span>

#include "cli/bench/refinery.hpp"
#include "cli/session.hpp"
#include "cli/tuning_devices.hpp"
#include "cli/workload.hpp"

namespace kiln::cli {

/// Throws Error(bad_input) for an op none of whose axes has buckets of more than one size.
void check_refinable(const spec::Op& op);

/// bench::Refinery on each bucket, for each class of device. What is finished is in the overlay, whatever comes after. Prints the
/// outcomes, as a table or as JSON, an object a part; gives the exit status.
int refine_buckets(const Globals& globals, const TuningDevices& devices, std::span<const OpBucket> buckets,
                   const bench::RefineChoice& choice);

}  // namespace kiln::cli
