// Engine, Op and Plan: set up once, then per call set a length and launch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kiln/arguments.hpp"
#include "kiln/error.hpp"
#include "kiln/options.hpp"
#include "kiln/problem.hpp"

struct CUstream_st;

namespace kiln {

/// A CUDA stream (CUstream or cudaStream_t; null is the default stream).
using Stream = CUstream_st*;

/// Where an answer came from. The first three are hits, the last three are stand-ins: another bucket's or device's record, what the
/// model expects to be fastest where no record is near, the op's default.
enum class Origin : std::uint8_t { hot, overlay, base, nearest, model, default_ };
inline constexpr std::size_t origin_count = 6;
std::string_view to_string(Origin origin) noexcept;  // "hot", "overlay", "base", "nearest", "model", "default"
constexpr bool is_stand_in(Origin origin) noexcept { return origin >= Origin::nearest; }

/// What the miss path looked for in the files and could not use, a count a reason. Hits are not looked up.
struct Misses {
  std::int64_t absent = 0;  // no file has a record of the bucket
  std::int64_t unusable =
      0;  // a record is there, and none of its configs is declared and legal in its bucket on this device
  std::int64_t damaged = 0;     // a row of the record or of its machine code did not hold, and was set aside
  std::int64_t unreadable = 0;  // the file system, or another process's lock, refused
  std::int64_t no_cubin =
      0;  // the record is there, its machine code for these sources, this compiler and architecture is not
  std::int64_t refused_cubin = 0;  // its machine code is there and the driver refused it
};

/// Launches by origin, and what the miss path did, since the engine was made.
struct Stats {
  std::int64_t hot = 0, overlay = 0, base = 0, nearest = 0, model = 0, default_ = 0;
  std::int64_t tunes = 0;                 // buckets tuned
  std::int64_t compiles = 0;              // specialisations compiled by NVRTC
  std::int64_t stale = 0;                 // buckets served though the sources of a config have changed since
  std::int64_t constraint_fallbacks = 0;  // launches that a default served: no other answer was legal at the sizes
  std::int64_t quarantined = 0;           // rows of the files that did not hold
  std::int64_t waiting = 0;               // buckets that are queued for, or in, a tune in the background
  double tuning_ns = 0;                   // that tunes in the background kept the GPU, at most
  std::int64_t uncounted = 0;             // launches that the histogram had no room for
  Misses misses;
  [[nodiscard]] std::int64_t launches() const noexcept { return hot + overlay + base + nearest + model + default_; }
};

namespace engine {
struct State;
struct OpState;
struct PlanState;
}  // namespace engine

/// What a plan's kernel asks of a multiprocessor; of its first pass, when there are several.
struct Footprint {
  int registers = 0;                  // a thread
  std::int64_t spill_bytes = 0;       // local memory a thread, the most of any pass
  int blocks_per_multiprocessor = 0;  // resident at once
};

/// A bucket's record made ready: loaded functions and geometry of each config that its sizes pick. Keeps what it needs of its Engine alive. A
/// moved-from Plan remains valid. One that a stand-in was made ready for stays that stand-in when its bucket has been tuned in the background since.
class Plan {
 public:
  Plan(const Plan&) = default;
  Plan& operator=(const Plan&) = default;
  ~Plan() = default;
  /// Launches at the real size. The problem must be of this plan's bucket; throws Error(bad_input) otherwise. See Op::launch.
  Origin launch(const Problem& problem, const Arguments& arguments, Stream stream) const;
  // Of the config that serves the bucket's upper edge; other sizes may have others (Engine::explain).
  [[nodiscard]] Origin origin() const noexcept;
  [[nodiscard]] std::string_view implementation() const noexcept;
  [[nodiscard]] std::string_view config() const noexcept;  // "threads=256 vector=8"
  /// Median device time when it was tuned, at its bucket's upper edge; 0 for a default or the model's choice.
  [[nodiscard]] double cost_ns() const noexcept;
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept;
  /// As the driver reports it. Throws Error(driver_failed).
  [[nodiscard]] Footprint footprint() const;

 private:
  friend class Op;
  Plan(std::shared_ptr<engine::OpState> op, const engine::PlanState* state) : op_(std::move(op)), state_(state) {}
  std::shared_ptr<engine::OpState> op_;
  const engine::PlanState* state_;
};

/// One op of an engine. Cheap to copy; a moved-from Op remains valid. Every member may be called from any thread.
class Op {
 public:
  Op(const Op&) = default;
  Op& operator=(const Op&) = default;
  ~Op() = default;

  using Setting = std::pair<std::string_view, std::variant<std::int64_t, std::string_view>>;
  using Argument = std::pair<std::string_view, std::variant<const void*, std::int64_t, double>>;

  [[nodiscard]] std::string_view name() const noexcept;
  /// Each throws Error(bad_input) for a name that the op does not have, with the nearest one that it has.
  [[nodiscard]] AxisId axis(std::string_view name) const;
  [[nodiscard]] TensorId tensor(std::string_view name) const;
  [[nodiscard]] RuntimeId runtime(std::string_view name) const;

  /// {{"rows", 1}, {"cols", 4096}, {"dtype", "bf16"}}. Every axis must be given; a type or choice left out takes its default.
  /// Throws Error(bad_input) naming the axis: unknown, missing, or out of its range.
  [[nodiscard]] Problem problem(std::initializer_list<Setting> settings) const;
  /// {{"x", x}, {"y", y}, {"epsilon", 1e-6}}; an axis by its name takes the device address of its length.
  /// Throws Error(bad_input) for a name that the op does not have.
  [[nodiscard]] Arguments arguments(std::initializer_list<Argument> arguments = {}) const;

  /// The hit path. A hot bucket costs no lock, allocation, string, file or clock, but that a thread's first launch of a plan makes
  /// room for what its later ones find again: 2 KiB of the process's memory, 12 more for each TMA descriptor. On a miss the engine's policy decides.
  /// On a capturing stream nothing is tuned, compiled, loaded, allocated on the device or waited for: what is not ready is served by the nearest bucket's
  /// plan that is loaded and legal here (Origin::nearest; under MissPolicy::error by none), else refused with Error(capture). The
  /// capture goes on either way, and a miss is queued under MissPolicy::background. Engine::prepare leaves nothing to miss.
  /// Throws Error(bad_input) for a size out of range, a missing tensor, an address that no implementation can serve, a stream of another
  /// context, or a length on the device that is null or of an axis that may not have one.
  ///
  /// Launches are ordered by `stream` alone. A launch uses the workspace that its plan has for `stream`; one that is captured, that of
  /// the stream captured on, wherever its graph is launched. So a graph may run beside anything but what uses the same workspace:
  /// launch it on the stream that it was captured on, or order it after that stream's launches of the same buckets (and after
  /// other graphs captured on it) by an event. Capture on a stream of its own for each graph that is to run beside another. Until the last
  /// launch of a graph is done, keep the stream that it was captured on (of a per-thread default stream, the thread), whose workspace
  /// another stream could get, and the Engine, an Op or a Plan of it, which holds the machine code. Two launches at once in one
  /// workspace give wrong results, and kernels whose blocks wait for each other may never end.
  Origin launch(const Problem& problem, const Arguments& arguments, Stream stream) const;

  /// Makes the bucket ready (look up, load, or tune, as the engine's policy says) without launching. For `stream` (where it is the
  /// per-thread default stream: that of the calling thread), its workspace too,
  /// so that a capture on it finds everything in place: also what serves where the record is not legal at this very size, and where a
  /// library, which takes no lengths on the device, has the record.
  Plan plan(const Problem& problem, Stream stream = nullptr) const;

 private:
  friend class Engine;
  friend class Tuner;
  explicit Op(std::shared_ptr<engine::OpState> state) : state_(std::move(state)) {}
  std::shared_ptr<engine::OpState> state_;
};

/// One layer's part in an answer, for people.
struct LayerAnswer {
  std::string layer;  // "overlay /home/u/.cache/kiln/overlay.kiln"
  std::string found;  // "record vectorized threads=256 vector=8, 12.3 us", "nothing", "not opened: ..."
  std::string trust;  // whether its machine code may be loaded, and why
};

/// What would be launched for a problem, and why. Nothing is tuned, compiled, loaded or launched to answer it.
struct Explanation {
  std::string problem;  // "rows=137 cols=4096 dtype=bf16": without types and choices at their defaults
  std::string bucket;   // likewise
  std::string key;      // the record key as text
  std::vector<LayerAnswer> layers;
  Origin origin = Origin::default_;
  std::string implementation;
  std::string config;
  std::string why;   // one sentence: "the overlay's record is legal at this problem", ...
  std::string miss;  // why no record serves, as in Misses: "absent", "unusable", ...; empty when one does
  bool stale = false;
  bool cubin_found = false;  // its machine code needs no compile
  std::string library;       // that computes it in place of kernels, such as "cublaslt 13.1.0"; else empty
  double cost_ns = 0;
  std::string
      timed_at;  // what that is the time of: "at the bucket's upper edge", "at rows=80", "of the nearest bucket"
  /// Its time over that of a tuned config: 1 for a hit; of a stand-in what others like it took, else the model's word, else at most what the
  /// op's cost allows; 0 when nothing serves.
  double expected_slowdown = 0;
  std::vector<std::string> passes;  // "rms_norm_vectorized<...> grid 512 1 1 block 256 1 1 shared 0"
};

/// A length in device memory that a kernel found to be negative or past its bound, and clamped.
struct LengthFault {
  std::string op;
  std::string axis;
  std::int64_t length = 0;
  std::int64_t bound = 0;
};

/// A problem that a launch would not hit, as things are.
struct Gap {
  std::string op;
  std::string problem;  // "rows=500 cols=4096 dtype=bf16"; empty when the op has no such problem
  std::string bucket;   // "rows=512 cols=4096 dtype=bf16"
  /// What would serve it on a capturing stream: nearest, model or default; nothing when a capture would be refused it.
  std::optional<Origin> serves;
  bool workspace_missing = false;  // a plan is there, and has no workspace for the stream that was asked about
  std::string why;                 // one sentence
};

/// What launches of some problems would find.
struct Coverage {
  std::int64_t total = 0;  // problems; buckets where none were named
  std::int64_t hits = 0;   // a record's plan is loaded, legal at the problem's sizes, and has its workspace
  std::vector<Gap> gaps;   // the others, in order
  /// True when nothing would be refused on a capturing stream: stand-ins serve the gaps.
  [[nodiscard]] bool capturable() const noexcept {
    for (const Gap& gap : gaps)
      if (!gap.serves) return false;
    return true;
  }
};

/// Thread-safe. Retains the device's primary context; keeps plans until it and all its Ops and Plans are gone. Made, used and ended while
/// another thread captures a graph, it leaves that capture alone; only a launch on the legacy default stream, as any work on it, ends
/// captures of streams that are in order with it. CUDA does not work in a child of fork: there, what its parent's Engines, Ops
/// and Plans are asked to do, and making a new Engine, throws Error(driver_failed). Destroying them leaves the parent's work alone.
class Engine {
 public:
  Engine(const Engine&) = default;
  Engine& operator=(const Engine&) = default;
  ~Engine() = default;
  /// Throws Error(no_driver), Error(no_device), or Error(bad_manifest) for a manifest in a template path.
  explicit Engine(const Options& options = {});

  /// Throws Error(bad_input) for an op that was not found, naming those that were. Under Loading::eager the first call for an op loads what
  /// the files hold of it; what cannot be loaded is left to the first launch that needs it.
  [[nodiscard]] Op op(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> ops() const;

  /// Makes every problem's bucket ready once, as Op::plan does, with workspaces for `stream`: a capture on it then finds all in place.
  /// Goes on past what fails, and answers as `coverage` then would, the failures' reasons with it. Sizes are all it goes by: an address
  /// less aligned than a record's config needs is served by a default that the first such launch loads, so launch that once before a capture.
  /// Throws Error(capture) on a capturing stream, Error(bad_input) for another engine's op or another device's stream.
  Coverage prepare(const Op& op, std::span<const Problem> problems, Stream stream = nullptr) const;
  /// Which of them would not be hits on `stream`, what would serve each in a capture, and why. Loads, compiles and launches nothing.
  [[nodiscard]] Coverage coverage(const Op& op, std::span<const Problem> problems, Stream stream = nullptr) const;
  /// The same for each bucket that was made ready so far, at its largest sizes, without regard to workspaces.
  [[nodiscard]] Coverage coverage() const;

  [[nodiscard]] Stats stats() const;
  [[nodiscard]] Explanation explain(const Op& op, const Problem& problem) const;
  /// Under MissPolicy::background: waits until every bucket that was asked for is tuned, or is known not to be. False when `limit` is over before.
  bool wait_for_tunes(std::chrono::milliseconds limit) const;
  /// Waits for `stream`, then says whether a kernel met a length outside its bound (see Arguments) since the last call: one for each op
  /// and axis, the latest, an answer a call; nothing when all were within. Launches of other streams that are done are told of too.
  /// Throws Error(capture) on a capturing stream, Error(driver_failed) for what failed on the stream.
  [[nodiscard]] std::optional<LengthFault> check(Stream stream) const;
  /// What was set aside or could not be used, such as an overlay that cannot be written: each is said once.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  friend class Tuner;
  [[nodiscard]] engine::OpState& own(const Op& op) const;
  std::shared_ptr<engine::State> state_;
};

}  // namespace kiln
