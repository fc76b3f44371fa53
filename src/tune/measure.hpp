// Device time of launches: L2 flushed or kept, events around each run, the runs of several candidates in turns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/gate.hpp"
#include "jit/module.hpp"
#include "kiln/options.hpp"
#include "tune/cubins.hpp"
#include "tune/search.hpp"

namespace kiln::tune {

/// Enqueues one run.
using Launch = std::function<void(CUstream)>;

/// Runs that kept the device busy for so long.
struct Busy {
  std::size_t runs = 0;
  double ns = 0;
  void add(std::span<const double> samples_ns);
};
/// Calls `take` for `rounds` rounds of runs, in batches between which the device rests, so that it keeps its highest clock. Long products
/// draw more than it may take for long: an H200 lowers its clock by a seventh after some 50 ms, for whoever comes next, and then each is
/// slower for what the one before it drew. `round_ns`: what a round is expected to take, 0 where nothing is known. Ends early where
/// nothing was run.
void in_batches(std::int64_t rounds, double round_ns, const std::function<Busy(std::int64_t)>& take);

struct MeasureLimits {
  double budget_ns = 25e6;
  std::int64_t minimum_samples = 9;
  std::int64_t maximum_samples = 41;
};

class Stopwatch {
 public:
  /// In regime cold_l2, holds a buffer of twice the L2, read before each run: that evicts what the run before left. Throws what
  /// Cubins::get_and_keep does.
  Stopwatch(const manifest::DeviceFacts& device, Regime regime, const std::string& arch, Cubins& cubins);
  /// `rounds` samples of each launch in nanoseconds, taken in turns, forwards in one round and backwards in the next, so that a
  /// clock that drifts meets them all alike. The stream is held back while the host enqueues.
  std::vector<std::vector<double>> sample(std::span<const Launch> launches, std::int64_t rounds, CUstream stream);
  /// The same for launches that follow each other at once, as in a decode step: a sample is what one of a chain of equal launches takes,
  /// with nothing between them, neither events nor a flush, so that what the tail of one and the head of the next overlap by shows.
  std::vector<std::vector<double>> sample_chains(std::span<const Launch> launches, std::int64_t rounds,
                                                 CUstream stream);
  /// One alone: a warm-up, then as many samples as the budget allows.
  Cost measure(const Launch& launch, CUstream stream, const MeasureLimits& limits);

 private:
  void enqueue(const Launch& launch, CUstream stream, std::size_t slot);
  double time_chain(const Launch& launch, std::int64_t links, CUstream stream);
  void flush(CUstream stream);

  std::unique_ptr<jit::Module> evict_;
  cuda::Buffer lines_;
  cuda::Gate gate_;
  std::vector<cuda::Event> begins_, ends_;
};

}  // namespace kiln::tune
