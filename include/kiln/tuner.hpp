// Tuner: buckets tuned ahead of time, on one GPU or several, and the file to deploy.
//
//   kiln::Tuner tuner(options, devices);  // {0, 1}
//   const kiln::Op gemm = tuner.op("gemm");
//   const auto all = tuner.between("gemm", gemm.problem({{"m", 1}, {"n", 4096}, {"k", 4096}}),
//                                  gemm.problem({{"m", 16384}, {"n", 4096}, {"k", 4096}}));  // every bucket of m
//   tuner.prewarm(all, {.stop = stop.get_token(), .on_step = [](const kiln::TuneStep& step) { ... }});
//   tuner.deploy(all, "gemm.kiln");
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/engine.hpp"
#include "kiln/error.hpp"
#include "kiln/options.hpp"
#include "kiln/problem.hpp"

namespace kiln {

/// One problem that is to be hit. All problems of a bucket are one tune.
struct Demand {
  std::string op;
  Problem problem;
};

/// Which buckets are tuned although they have a usable record.
enum class Retune : std::uint8_t {
  none,
  stale,  // those with a config that was tuned from other sources than the present ones
  all,
};

/// A step of a Tuner's tunes.
struct TuneStep {
  TuneEvent event;  // its texts are valid during the call
  int device = 0;   // the ordinal of the GPU that takes it
  std::int64_t number =
      0;  // of the bucket, from 1, in the order in which the devices take them; those that are found count too
  std::int64_t buckets = 0;  // in all: each bucket once for each class of device
};

/// A step on the way to a deployment's machine code.
struct CompileStep {
  std::string_view label;  // of what is brought next
  std::int64_t done = 0;
  std::int64_t total = 0;
};

struct TuneChoice {
  Retune retune = Retune::none;
  /// On several devices buckets are taken as they come, not those that take longest first.
  bool in_order = false;
  /// Ends the work: between candidates, and between compiles. Options::stop_requested does so too.
  std::stop_token stop{};
  /// One call at a time, on the thread that tunes.
  std::function<void(const TuneStep&)> on_step{};
  std::function<void(const CompileStep&)> on_compile{};
};

/// What became of a bucket on one class of device.
struct TunedBucket {
  enum class Outcome : std::uint8_t {
    found,   // it had a usable record
    tuned,   // it has a new record; see `kept`
    failed,  // nothing is legal or came out right; its files are as they were
  };
  std::string op;
  Problem bucket;  // upper edges
  std::string device_class;
  Outcome outcome = Outcome::failed;
  Origin origin = Origin::overlay;  // where its record lies: overlay or base
  bool stale = false;               // a config of it was tuned from other sources
  bool kept =
      false;  // tuned: read back from the overlay's file once all buckets were done; else warnings() says why not
  std::string implementation;  // that serves the bucket's upper edge, and what follows with it
  std::string config;          // "threads=256 vector=8"
  std::int64_t configs = 0;    // distinct ones that serve the bucket
  double cost_ns = 0;          // median device time at the upper edge
  double baseline_ns = 0;      // of the op's default there; 0 where it is not legal
  std::string reason;          // why it failed
};

struct TuneReport {
  std::vector<TunedBucket> buckets;  // as far as it came: by class of device, in the order of the demands
  std::int64_t wanted = 0;           // buckets in all: each once for each class of device
  bool interrupted = false;
};

/// What a deployment needs, and holds.
struct Deployment {
  struct Missing {
    std::string op, bucket, why;
  };
  std::string device_class;
  std::string arch;  // "sm_90a"
  std::int64_t buckets = 0;
  std::int64_t stale = 0;  // with a config that was tuned from other sources
  std::vector<Missing>
      missing;  // buckets without a usable record: others' configs and defaults stand in (MissPolicy::nearest)
  std::int64_t cubins = 0;       // of every config, every default and what verifies them
  std::int64_t compiled = 0;     // of those, compiled by this call
  std::int64_t image_bytes = 0;  // of all cubins, uncompressed
};

struct Prewarmed {
  TuneReport tuned;
  std::vector<Deployment> deployments;  // one a class of device; none when the tunes were interrupted
};

class Tuner;
namespace engine {
struct TunerState;
TunerState& state_of(const Tuner& tuner) noexcept;
}  // namespace engine

/// Tunes into the overlay of its Options, which every engine and process of this user reads: a bucket that another one tunes meanwhile is
/// waited for and found. Candidates run, and compiles are made, as Options::isolation says. Every member may be called from any thread;
/// calls that tune or compile wait for each other. Cheap to copy: copies are one Tuner.
class Tuner {
 public:
  Tuner(const Tuner&) = default;
  Tuner& operator=(const Tuner&) = default;
  ~Tuner() = default;
  /// On Options::device. Throws as Engine's constructor does.
  explicit Tuner(const Options& options = {});
  /// On these GPUs, by their ordinals: they share the buckets out among themselves, and each bucket is tuned once for each class of device.
  /// The compiles at once are shared out too. Throws Error(bad_input) for none, for one that is named twice, and for several with an
  /// overlay in memory.
  Tuner(const Options& options, std::span<const int> devices);
  /// With an engine's device, files and options; its own launches find what is tuned at their next miss.
  explicit Tuner(const Engine& engine);

  /// Of the first device, to form problems by. Throws Error(bad_input) for an op that was not found, naming those that were.
  [[nodiscard]] Op op(std::string_view name) const;
  /// A demand for each bucket that the problems from `low` to `high` touch, both included, axis by axis: for axes that are exact every legal
  /// size. Throws Error(bad_input) for problems whose types or choices differ, an axis that ends before it begins, and more than 10,000
  /// buckets.
  [[nodiscard]] std::vector<Demand> between(std::string_view op, const Problem& low, const Problem& high) const;

  /// Tunes each bucket that has no usable record, and those of `choice.retune`. Each finished bucket is in the overlay at once, in one
  /// transaction, or, where the overlay cannot be written, in memory and not `kept`; one in work when the tune is stopped, or fails, is as it was. A bucket in which nothing comes out right is reported as
  /// failed and the others go on. Throws Error(bad_input) for a demand that is no problem of its op, before anything is tuned, and what
  /// ends all tunes, such as Error(no_nvrtc) or a broken context's Error(driver_failed).
  TuneReport tune(std::span<const Demand> demands, const TuneChoice& choice = {}) const;
  /// tune(), then all machine code that launches and verification of these buckets can need is in the overlay: no launch compiles.
  /// Throws as tune() and deploy() do; where the tunes were interrupted, says so and compiles nothing.
  Prewarmed prewarm(std::span<const Demand> demands, const TuneChoice& choice = {}) const;
  /// Writes a file to deploy beside a program (Options::bases): the records of these buckets and all machine code that they can need, so
  /// that it is served without NVRTC. Tunes nothing. The file is written beside `path`, a .kiln file, and renamed into place; an existing
  /// one is replaced. Throws Error(bad_input) where the devices are of several classes, Error(interrupted) when stopped, Error(no_nvrtc)
  /// when a compile is needed and cannot be made, Error(io) and Error(no_permission).
  Deployment deploy(std::span<const Demand> demands, const std::filesystem::path& path,
                    const TuneChoice& choice = {}) const;

  /// As Engine::warnings, of all devices.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  friend engine::TunerState& engine::state_of(const Tuner& tuner) noexcept;
  std::shared_ptr<engine::TunerState> state_;
};

}  // namespace kiln
