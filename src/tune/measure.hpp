// Measures the device time of launches by events, with L2 flushed or kept, several candidates in turns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "cuda/gate.hpp"
#include "jit/module.hpp"
#include "kiln/options.hpp"
#include "tune/search.hpp"

namespace kiln::tune {

/// Enqueues one run.
using Launch = std::function<void(CUstream)>;

/// The number and total device time of a batch's runs.
struct BatchTime {
  std::size_t runs = 0;
  double ns = 0;
  void add(std::span<const double> samples_ns);
};
/// Calls `take` with a number of rounds, in batches, until it has taken `rounds`. The device rests between batches, so
/// that it keeps its highest clock: an H200 under long products lowers its clock by a seventh after some 50 ms, which
/// would slow the runs that follow. `round_ns`: expected time of a round, or 0 if unknown. Ends early when a batch ran
/// nothing.
void in_batches(std::int64_t rounds, double round_ns, const std::function<BatchTime(std::int64_t)>& take);

struct MeasureLimits {
  double budget_ns = 25e6;
  std::int64_t minimum_samples = 9;
  std::int64_t maximum_samples = 41;
};

class Stopwatch {
 public:
  /// In regime cold_l2 allocates a buffer of twice the L2, which is read before each run to evict the data of the run
  /// before. Throws Error(out_of_memory), and as Cubins::get_and_keep() does.
  Stopwatch(const manifest::DeviceFacts& device, Regime regime, const std::string& arch, answer::Cubins& cubins);
  /// Enqueues `work` before each run that sample() times, between the flush and the run.
  void before_each(Launch work) { before_each_ = std::move(work); }
  /// Returns `rounds` samples of each launch in nanoseconds. Launches take turns, forwards in one round and backwards
  /// in the next, so that a drifting clock affects all alike. The stream is blocked while the host enqueues, unless a
  /// launch waits for it there. Throws Error(driver_failed).
  std::vector<std::vector<double>> sample(std::span<const Launch> launches, std::int64_t rounds, CUstream stream);
  /// Samples chains of equal launches, without events or flushes between them, as in a decode step. A sample is a
  /// chain's time over its number of launches. It shows the overlap of one launch's tail with the next one's head.
  std::vector<std::vector<double>> sample_chains(std::span<const Launch> launches, std::int64_t rounds,
                                                 CUstream stream);
  /// Times one launch: a warm-up, then as many samples as the limits allow. Throws Error(driver_failed).
  Cost measure(const Launch& launch, CUstream stream, const MeasureLimits& limits);

 private:
  void enqueue(const Launch& launch, CUstream stream, std::size_t slot);
  double time_chain(const Launch& launch, std::int64_t links, CUstream stream, bool& holds);
  std::vector<std::vector<double>> sample(std::span<const Launch> launches, std::int64_t rounds, CUstream stream,
                                          bool& holds);
  /// `holds` becomes false where a launch waits for the stream where it is enqueued. Flushes alone cover the host's
  /// time then.
  void hold(CUstream stream, bool& holds, const std::function<void()>& work);
  void flush(CUstream stream);

  std::unique_ptr<jit::Module> evict_;
  cuda::Buffer lines_;
  cuda::Gate gate_;
  std::vector<cuda::Event> begins_, ends_;
  Launch before_each_;
};

}  // namespace kiln::tune
