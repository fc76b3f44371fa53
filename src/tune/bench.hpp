// Where the candidates of one bucket are verified and timed: in this process, or in a worker of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "jit/specialisation.hpp"
#include "kiln/options.hpp"
#include "manifest/problem.hpp"
#include "store/record.hpp"
#include "tune/cubins.hpp"
#include "tune/measure.hpp"

namespace kiln::tune {

/// One candidate as it is tried. `at`: the largest of the lengths at which it is legal, which it is made ready for.
struct Trial {
  const manifest::Implementation& implementation;
  std::span<const std::int64_t> config;
  const jit::Cubin& cubin;
  const Problem& at;
};

/// What became of it when it was brought in. Only one that came out right may be sampled.
struct Admission {
  store::Verdict verdict = store::Verdict::not_timed;
  std::string reason;
  int registers = 0;
  std::int64_t spill_bytes = 0;
};

/// Device time of one candidate's runs, or why there is none: it failed after it had come out right.
struct Samples {
  std::vector<double> ns;
  std::string failure;
};

class Bench {
 public:
  virtual ~Bench() = default;
  /// Point::length numbers them; none is larger than the bucket. Before anything is admitted.
  virtual void set_lengths(std::vector<Problem> lengths) = 0;
  /// Loads a candidate under a number of the caller's choice and verifies it at both ends of the bucket.
  /// Throws Error(driver_failed) when the candidate broke the context that it shares with the caller, Error(out_of_memory).
  virtual Admission admit(std::size_t candidate, const Trial& trial) = 0;
  /// `rounds` samples of each point, in turns; neither samples nor a failure of one that is not legal there. Precondition: candidates are
  /// admitted. Throws as admit() does.
  virtual std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) = 0;
  /// The same of chains: each sample is what one of many launches takes that follow each other at once.
  virtual std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) = 0;
  /// Unloads it.
  virtual void drop(std::size_t candidate) = 0;
  /// How long preparing it kept the device, by the host's clock: filling tensors, running the reference.
  [[nodiscard]] virtual double prepared_ns() const = 0;
};

struct BenchSettings {
  const manifest::Op& op;
  const Problem& bucket;  // upper edges
  const cuda::DeviceInfo& device;
  Regime regime = Regime::cold_l2;
  std::string arch;
};

/// In the current context: allocates and fills the tensors, runs the reference. Throws as VerificationCase does.
std::unique_ptr<Bench> local_bench(const BenchSettings& settings, Cubins& cubins);

}  // namespace kiln::tune
