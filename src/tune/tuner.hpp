// Tunes one bucket: every candidate verified, then timed, then a choice that is published with its cubin.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "spec/problem.hpp"
#include "store/record.hpp"
#include "tune/cubins.hpp"
#include "tune/search.hpp"
#include "tune/worker.hpp"

namespace kiln::tune {

struct TuneRequest {
  const spec::Op& op;
  Problem bucket;   // upper edges
  std::string key;  // spec::record_key
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
  /// On spec::refined_axis, the lowest size that the second length is chosen for: where other configs serve below it. 0: the bucket's.
  std::int64_t lowest = 0;
};

struct TuneResult {
  store::Record record;
  jit::Specialisation specialisation;  // of the winner
  KeyedCubin cubin;
  std::optional<store::Record> runner_up;  // of a winner that a library computes, under spec::runner_up_key
};

/// Without a worker, and for an op that a library can compute, the context must be current. Candidates are verified at both ends of the bucket (the upper edge, and the lowest sizes, where tails are
/// ragged) before their time counts: at the upper edge, which records keep, and in the finals at an odd length inside too. Nothing is written: the caller publishes the result.
/// Throws Error(not_tuned) when nothing is legal or nothing came out right, Error(interrupted) when asked to stop,
/// Error(driver_failed) when a candidate broke the context that it shared (its name is in the message); in a worker it is rejected alone.
/// Error(out_of_memory) naming the bucket when its tensors do not fit.
TuneResult tune_bucket(const TuneRequest& request, Cubins& cubins);

/// Writes the result to the overlay in one transaction: the record, its runner-up, their machine code and that of the defaults, which
/// serve real sizes that break the winner's constraints. They were compiled as candidates. What split the bucket between an earlier winner and
/// another config goes in the same transaction.
void publish(const TuneRequest& request, const TuneResult& result, Cubins& cubins);

/// A part of a split bucket: it answers for the sizes up to `edge`, the bucket with its axis at that size.
struct LowerPart {
  Problem edge;
  store::Record record;                      // under spec::refined_key
  std::optional<store::Record> runner_up{};  // of a record that a library computes
};

/// Splits a bucket: writes the records of its lower parts with their machine code, and beside them that of the whole bucket with
/// the runner-up that it has in its layer, since a split holds only in the layer of the record that it was measured against. Earlier
/// splits of the bucket go. One transaction.
void publish_split(const spec::Op& op, const spec::DeviceFacts& device, const std::string& arch,
                   const store::Found<store::Record>& whole, std::span<const LowerPart> lower, Cubins& cubins);

}  // namespace kiln::tune
