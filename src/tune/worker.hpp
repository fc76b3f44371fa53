// Trials in a process of their own: a candidate that faults or hangs takes that process with it, and nothing of the caller's.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include "tune/bench.hpp"

namespace kiln::tune {

struct WorkerPatience {
  std::chrono::milliseconds trial{60'000};   // one candidate, verified and timed
  std::chrono::milliseconds begin{300'000};  // context, tensors, reference
};

/// One worker process, begun at the first need, kept from bucket to bucket, begun anew after it died.
class Worker {
 public:
  explicit Worker(std::filesystem::path program, WorkerPatience patience = {});
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Sends the op's sources, the bucket and the machine code that verifying needs; compiled here, by `cubins`. A candidate that
  /// ends the worker, or is not done in time, is rejected with the reason, and the next one meets a new worker. Throws what
  /// local_bench would throw there, and Error(io) when the program cannot be run.
  std::unique_ptr<Bench> bench(const BenchSettings& settings, Cubins& cubins);

 private:
  struct State;
  std::unique_ptr<State> state_;
  friend class RemoteBench;
};

}  // namespace kiln::tune
