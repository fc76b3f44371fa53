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
#include "kiln/export.h"
#include "kiln/options.hpp"
#include "kiln/problem.hpp"

namespace kiln {

/// A problem of the wanted bucket. All problems of a bucket are one tune.
struct Demand {
  std::string op;
  Problem problem;
};

/// Which buckets with a usable record are tuned again.
enum class Retune : std::uint8_t {
  none,
  stale,  // those with a config of sources that have changed since
  all,
};

/// A step of a Tuner's tunes.
struct TuneStep {
  TuneEvent event;           // its texts are valid during the call
  int device = 0;            // ordinal of the GPU that tunes the bucket
  std::int64_t number = 0;   // of the bucket, from 1, in the order in which devices take them; found ones count too
  std::int64_t buckets = 0;  // in all: each bucket once for each class of device
};

/// A step of collecting a deployment's machine code.
struct CompileStep {
  std::string_view label;  // of the kernel that is looked up or compiled next
  std::int64_t done = 0;
  std::int64_t total = 0;
};

struct TuneChoice {
  Retune retune = Retune::none;
  /// Whether several devices take buckets in their order, rather than those that take longest to tune first.
  bool in_order = false;
  /// deploy(): replaces a file that exists, whatever it is.
  bool replace = false;
  /// Ends the work between candidates and between compiles, as Options::stop_requested does.
  std::stop_token stop{};
  /// Called once at a time, on the thread that tunes.
  std::function<void(const TuneStep&)> on_step{};
  std::function<void(const CompileStep&)> on_compile{};
};

/// The result of a bucket on one class of device.
struct TunedBucket {
  enum class Outcome : std::uint8_t {
    found,   // it had a usable record
    tuned,   // it has a new record; see `kept`
    failed,  // no config is legal, or none gave right results; the files are unchanged
  };
  std::string op;
  Problem bucket;  // upper edges
  std::string device_class;
  Outcome outcome = Outcome::failed;
  Origin origin = Origin::overlay;  // where its record lies: overlay or base
  bool stale = false;               // the sources of a config have changed since its tune
  bool kept = false;           // tuned, and read back from the overlay's file at the end; else warnings() says why not
  std::string implementation;  // of the config that serves the bucket's upper edge, as the next member
  std::string config;          // "threads=256 vector=8"
  std::int64_t configs = 0;    // distinct configs that serve the bucket
  double cost_ns = 0;          // median device time at the upper edge
  double baseline_ns = 0;      // the default's median device time there; 0 where it is not legal
  std::string reason;          // of a failure
  /// Of a tune: implementations that gave a wrong result with every config that ran, a sentence each. They are left
  /// out; their kernels need a fix.
  std::vector<std::string> wrong;
};

struct TuneReport {
  std::vector<TunedBucket> buckets;  // those that were reached: by class of device, in the order of the demands
  std::int64_t wanted = 0;           // buckets in all: each once for each class of device
  bool interrupted = false;
};

/// Contents of a file to deploy, for one class of device.
struct Deployment {
  struct Missing {
    std::string op, bucket, why;
  };
  std::string device_class;
  std::string arch;  // "sm_90a"
  std::int64_t buckets = 0;
  std::int64_t stale = 0;        // buckets with a config of sources that have changed since
  std::vector<Missing> missing;  // buckets without a usable record, which fallbacks serve
  std::int64_t cubins = 0;       // of every config, every default and the references that verify them
  std::int64_t compiled = 0;     // cubins compiled by this call
  std::int64_t image_bytes = 0;  // of all cubins, uncompressed
};

struct Prewarmed {
  TuneReport tuned;
  std::vector<Deployment> deployments;  // one a class of device; none when the tunes were interrupted
};

namespace engine {
struct TunerState;
}  // namespace engine

/// Tunes into the overlay of its Options, which every engine and process of this user reads. A bucket that another
/// process is tuning is waited for, and found. Every member may be called from any thread; calls that tune or compile
/// wait for each other. Cheap to copy: copies are one Tuner.
///
/// With Options::team, tune() and prewarm() are collective: all ranks of the team call them, with the same demands for
/// ops of the team in the same order, and the same TuneChoice::retune. Their buckets come first. Rank 0 tunes them and
/// every other rank takes part; each rank's overlay gets the records. A failure or a stop of one rank ends the tune on
/// all. Other demands are for this rank alone, and may differ. An engine that has a team's bucket ready keeps its plan.
/// Ranks wait for each other for 30 minutes here, whatever TeamOptions::timeout is. deploy() is not collective.
class KILN_API Tuner {
 public:
  Tuner(const Tuner&) = default;
  Tuner& operator=(const Tuner&) = default;
  ~Tuner() = default;
  /// On Options::device. Throws as Engine's constructor does.
  explicit Tuner(const Options& options = {});
  /// On the GPUs of these ordinals, which divide buckets and compiles among themselves. Each bucket is tuned once for
  /// each class of device. Throws Error(bad_input) for an empty list, for a device named twice, and for several devices
  /// with an overlay in memory. With a team, its device must be among them, and all must be of one class.
  Tuner(const Options& options, std::span<const int> devices);
  /// On an engine's device, with its files and options. A bucket that the engine has ready is served by its new record
  /// at once; another one at its next miss.
  explicit Tuner(const Engine& engine);

  /// An op of the first device. Throws Error(bad_input) for an unknown op, listing those that there are.
  [[nodiscard]] Op op(std::string_view name) const;
  /// A demand for each bucket of the problems from `low` to `high`, both included on every axis. An exact axis gives
  /// every legal size. Throws Error(bad_input) where types or choices of the two differ, where `low` is above `high` on
  /// an axis, and for more than 10,000 buckets.
  [[nodiscard]] std::vector<Demand> between(std::string_view op, const Problem& low, const Problem& high) const;

  /// Tunes each bucket that has no usable record, and those of `choice.retune`. Each finished bucket is written to the
  /// overlay at once, in one transaction. If the overlay cannot be written, the bucket is held in memory and not
  /// `kept`. A bucket that is stopped, or fails, is left as it was. One bucket's failure is reported in its
  /// TunedBucket, and the rest go on. A stop is reported as `interrupted`. Throws Error(bad_input) for a demand that is
  /// no problem of its op or needs a team, before anything is tuned. Throws failures that end all tunes, such as
  /// Error(no_nvrtc) or a broken context's Error(driver_failed).
  TuneReport tune(std::span<const Demand> demands, const TuneChoice& choice = {}) const;
  /// Compiles into the overlay all machine code that launching and verifying these buckets can need, so that no launch
  /// compiles. Tunes nothing. Returns the contents for each class of device. Throws as deploy() does.
  std::vector<Deployment> compile(std::span<const Demand> demands, const TuneChoice& choice = {}) const;
  /// tune(), then compile() unless the tunes were interrupted. Throws as these do.
  Prewarmed prewarm(std::span<const Demand> demands, const TuneChoice& choice = {}) const;
  /// Writes a file to ship beside a program (Options::bases) that serves these buckets without NVRTC: their records and
  /// all machine code that they can need. Tunes nothing. The file is written beside `path`, which ends in .kiln, and
  /// renamed over it. One that exists is replaced when it is such a file and none of its records is lost, or with
  /// `choice.replace`; else Error(bad_input) is thrown. Throws Error(bad_input) where the devices are of several
  /// classes, too, Error(interrupted) when stopped, Error(io) and Error(no_permission). Throws Error(no_nvrtc) where a
  /// compile is needed and there is no NVRTC.
  Deployment deploy(std::span<const Demand> demands, const std::filesystem::path& path,
                    const TuneChoice& choice = {}) const;

  /// Why the overlay does not keep all that was tuned or compiled here, such as a file that cannot be written; empty
  /// where it does.
  [[nodiscard]] std::string not_kept() const;
  /// Engine::warnings of all devices.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  std::shared_ptr<engine::TunerState> state_;
};

}  // namespace kiln
