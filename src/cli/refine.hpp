// kiln tune --refine: splits buckets at the size where another config begins to win.
#pragma once

#include <span>

#include "cli/session.hpp"
#include "cli/tuning_devices.hpp"
#include "cli/workload.hpp"

namespace kiln::cli {

/// Throws Error(bad_input) for an op none of whose axes has buckets of more than one size.
void check_refinable(const spec::Op& op);

struct RefineChoice {
  double threshold = 0.03;  // how much faster a part's config must be at the part's lowest size
  int most_parts = 3;       // that are split off a bucket
};

/// bench::Refinery on each bucket, for each class of device. What is finished is in the overlay, whatever comes after. Prints the
/// outcomes, as a table or as JSON, an object a part; gives the exit status.
int refine_buckets(const Globals& globals, const TuningDevices& devices, std::span<const OpBucket> buckets,
                   const RefineChoice& choice);

}  // namespace kiln::cli
