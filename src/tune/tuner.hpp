// Tunes one bucket: every candidate verified, then timed at several lengths, then a few that are published with their cubins.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "manifest/problem.hpp"
#include "store/record.hpp"
#include "tune/cubins.hpp"
#include "tune/search.hpp"
#include "tune/worker.hpp"

namespace kiln::tune {

struct TuneRequest {
  const manifest::Op& op;
  Problem bucket;   // upper edges
  std::string key;  // manifest::record_key
  const cuda::DeviceInfo& device;
  Regime regime = Regime::cold_l2;
  std::string arch;  // "sm_90a"
  SearchSettings search{};
  Worker* worker = nullptr;  // null: candidates run in the current context
  std::function<bool()> stop_requested;
  std::function<void(const TuneEvent&)> on_event;
  /// Called after each stretch of device work with how long it kept the device, in nanoseconds of the host's clock; a tune beside a
  /// service sleeps here.
  std::function<void(double)> pace{};
};

/// A kernel with its machine code.
struct Made {
  jit::Specialisation specialisation;
  KeyedCubin cubin;
};

struct TuneResult {
  store::Record record;
  std::vector<Made> made;  // what the record's choices launch, each kernel once; none of a library
};

/// Candidates are timed at several lengths of the bucket (tune/lengths.hpp), and the few configs that leave least to be gained over the
/// whole bucket become the record's choices (tune/portfolio.hpp). They are verified at both ends of the bucket (the upper edge, and the
/// lowest sizes, where tails are ragged) before their time counts. Nothing is written: the caller publishes the result, so that a tune
/// that was interrupted leaves the bucket as it was.
/// Without a worker, and for an op that a library can compute, the context must be current.
/// Throws Error(not_tuned) when nothing is legal or nothing came out right, Error(interrupted) when asked to stop,
/// Error(driver_failed) when a candidate broke the context that it shared (its name is in the message); in a worker it is rejected alone.
/// Error(out_of_memory) naming the bucket when its tensors do not fit.
TuneResult tune_bucket(const TuneRequest& request, Cubins& cubins);

/// Writes the result to the overlay in one transaction: the record with all its choices, their machine code, and that of the defaults,
/// which serve real sizes that break a choice's constraints. They were compiled as candidates.
void publish(const TuneRequest& request, const TuneResult& result, Cubins& cubins);

}  // namespace kiln::tune
