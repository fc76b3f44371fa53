// Where the candidates of one bucket are verified and timed: in this process, or in a worker of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cuda/device.hpp"
#include "jit/specialisation.hpp"
#include "kiln/options.hpp"
#include "spec/problem.hpp"
#include "store/record.hpp"
#include "tune/cubins.hpp"
#include "tune/measure.hpp"
#include "tune/search.hpp"

namespace kiln::tune {

/// One candidate as it is tried.
struct Trial {
  const spec::Implementation& implementation;
  std::span<const std::int64_t> config;
  const jit::Cubin& cubin;
  double best_ns;  // the best median so far, infinite when there is none
};

/// What became of it. Only one that came out right has a cost.
struct TrialResult {
  store::Verdict verdict = store::Verdict::not_timed;
  std::string reason;
  Cost cost;
  int registers = 0;
  std::int64_t spill_bytes = 0;
};

class Bench {
 public:
  virtual ~Bench() = default;
  /// Verifies at both ends of the bucket, then times at its upper edge. Throws Error(driver_failed) when the candidate broke
  /// the context that it shares with the caller, Error(out_of_memory).
  virtual TrialResult try_one(const Trial& trial) = 0;
};

struct BenchSettings {
  const spec::Op& op;
  const Problem& bucket;  // upper edges
  const cuda::DeviceInfo& device;
  Regime regime = Regime::cold_l2;
  std::string arch;
  MeasureLimits limits{};
};

/// In the current context: allocates and fills the tensors, runs the reference. Throws as VerificationCase does.
std::unique_ptr<Bench> local_bench(const BenchSettings& settings, Cubins& cubins);

}  // namespace kiln::tune
