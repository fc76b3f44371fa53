// Bringing buckets to a record: those that have one are found, the others are tuned and published one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "cli/tuning_devices.hpp"
#include "cli/workload.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {

enum class Outcome { tuned, found, failed };

struct TunedBucket {
  OpBucket of;
  Outcome outcome = Outcome::failed;
  Origin origin = Origin::overlay;  // of one that was found
  bool stale = false;
  store::Record record;      // without candidates; empty when it failed
  std::string reason;        // why it failed
  spec::DeviceFacts device;  // that it was tuned on, or looked up for
};

struct TuningResult {
  std::vector<TunedBucket> buckets;  // as far as it came
  bool interrupted = false;
};

/// Which buckets are tuned although they have a usable record.
enum class Again { none, stale, all };

struct TuningChoice {
  Again again = Again::none;
  std::function<std::int64_t(const OpBucket&)> lowest{};  // tune::TuneRequest::lowest of each bucket; null: 0
};

/// Tunes each bucket that has no usable record, and those of `choice.again`. What is finished is in the overlay, whatever comes after.
/// A bucket in which nothing comes out right is reported as failed and the rest go on. Throws what ends them all.
/// Of several devices each takes the next bucket when it is done with its last. A bucket is tuned once for each device class.
TuningResult tune_buckets(const Globals& globals, const TuningDevices& devices, std::span<const OpBucket> buckets,
                          const TuningChoice& choice);

/// One bucket's failure leaves the others their chance; a machine's, or a broken context's, does not.
bool is_of_one_bucket(ErrorKind kind) noexcept;

/// The closing table: bucket, winner, cost, baseline, speed-up, bandwidth and throughput. As JSON, an object a bucket.
void print_tuned(const Globals& globals, const TuningResult& result);

}  // namespace kiln::cli
