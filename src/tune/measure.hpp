// Device time of a launch: L2 flushed or kept, events around each run, enough samples for a median with an interval.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cuda/device.hpp"
#include "kiln/options.hpp"
#include "tune/search.hpp"

namespace kiln::tune {

struct MeasureLimits {
  double budget_ns = 25e6;  // of one candidate, warm-up not counted
  std::int64_t minimum_samples = 9;
  std::int64_t maximum_samples = 41;
  double hopeless = 1.5;  // give up early on a candidate whose best of the first samples is this far behind
};

class Stopwatch {
 public:
  /// Holds a buffer of twice the L2, written before each run in regime cold_l2: that evicts what the run before left.
  Stopwatch(const spec::DeviceFacts& device, Regime regime);
  /// `launch` enqueues one run. `best_ns`: the best median so far, infinite when there is none.
  Cost measure(const std::function<void(CUstream)>& launch, CUstream stream, const MeasureLimits& limits,
               double best_ns);

 private:
  void enqueue(const std::function<void(CUstream)>& launch, CUstream stream, std::size_t sample);
  void collect(std::size_t begin, std::size_t end, std::vector<double>& samples);

  Regime regime_;
  cuda::Buffer flush_;
  std::vector<cuda::Event> begins_, ends_;
};

}  // namespace kiln::tune
