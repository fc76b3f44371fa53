// Runs trials in a worker process: a candidate that faults or hangs ends that process, and not the caller's.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include "tune/bench.hpp"

namespace kiln::tune {

struct WorkerTimeouts {
  std::chrono::milliseconds trial{60'000};   // for one message about candidates
  std::chrono::milliseconds begin{300'000};  // for context, tensors and reference
};

inline constexpr int most_attempts = 3;  // of workers that somebody kills

/// One worker process, started on demand, kept from bucket to bucket, and replaced after it ended.
class Worker {
 public:
  explicit Worker(std::filesystem::path program, WorkerTimeouts patience = {});
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Sends the op's sources, the bucket and the machine code that verifying needs, which `cubins` compiles in this
  /// process. A candidate that ends the worker or times out is rejected with the reason, and a new worker takes the
  /// next one. Throws what local_bench() throws in the worker, and Error(io) when the program cannot be run.
  std::unique_ptr<Bench> bench(const BenchSettings& settings, answer::Cubins& cubins);

 private:
  struct State;
  std::unique_ptr<State> state_;
  friend class RemoteBench;
};

}  // namespace kiln::tune
