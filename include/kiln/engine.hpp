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
#include "kiln/binding.hpp"
#include "kiln/description.hpp"
#include "kiln/error.hpp"
#include "kiln/export.h"
#include "kiln/options.hpp"
#include "kiln/problem.hpp"
#include "kiln/version.h"

struct CUstream_st;

namespace kiln {

/// The version of the library that runs, "0.1.0"; that of these headers is KILN_VERSION_STRING.
KILN_API std::string_view version() noexcept;

/// A CUDA stream (CUstream or cudaStream_t; null is the default stream).
using Stream = CUstream_st*;

/// The source of an answer: hits, then kinds of fallback. Statistics, explanations, coverage and the command use the
/// same names.
enum class Origin : std::uint8_t {
  hot,       // hit: a plan in memory; that of a fallback is counted and reported as the fallback
  overlay,   // hit: a record of the user's file
  base,      // hit: a record of a shipped file
  nearest,   // fallback: another record, of a near device or of a near bucket
  model,     // fallback: the config that the cost model expects to be the fastest
  default_,  // fallback: the op's default
};
inline constexpr std::size_t origin_count = 6;
KILN_API std::string_view to_string(Origin origin) noexcept;  // "hot", "overlay", "base", "nearest", "model", "default"
/// Whether something serves in place of the bucket's own record.
constexpr bool is_fallback(Origin origin) noexcept { return origin >= Origin::nearest; }
constexpr bool is_hit(Origin origin) noexcept { return !is_fallback(origin); }

/// Look-ups of a record or its machine code that failed, by reason. A hot bucket is not looked up.
struct Misses {
  std::int64_t absent = 0;         // no file has a record of the bucket
  std::int64_t unusable = 0;       // no config of the record is declared by the op and legal on this device
  std::int64_t damaged = 0;        // a row failed its digest and was quarantined
  std::int64_t unreadable = 0;     // the file system failed, or another process held its lock too long
  std::int64_t no_cubin = 0;       // no file has the record's machine code for these sources and this architecture
  std::int64_t refused_cubin = 0;  // the driver refused the record's machine code
};

/// Counts since the engine was made: launches by origin, and the work of misses.
struct Stats {
  std::int64_t hot = 0, overlay = 0, base = 0, nearest = 0, model = 0, default_ = 0;
  std::int64_t tunes = 0;                 // buckets tuned
  std::int64_t compiles = 0;              // specialisations compiled by NVRTC
  std::int64_t compiles_ahead = 0;        // those among them that no launch waited for (Options::compile_ahead)
  std::int64_t stale = 0;                 // buckets served by a config of sources that have changed since
  std::int64_t constraint_fallbacks = 0;  // launches that a default served after a plan refused the call
  std::int64_t quarantined = 0;           // rows of the files that failed their digest, or that the driver refused
  std::int64_t waiting = 0;               // buckets that are queued for, or in, a tune in the background
  double tuning_ns = 0;                   // device time that tunes in the background took, at most
  std::int64_t uncounted = 0;             // launches that the full histogram dropped
  std::int64_t workspace_bytes = 0;       // device memory that workspaces hold now
  // The shared store (Options::remote): buckets that it had and had not; operations that failed and values that did not
  // hold; bytes of values read and written.
  std::int64_t shared_hits = 0, shared_misses = 0, shared_errors = 0, shared_bytes = 0;
  Misses misses;
  [[nodiscard]] std::int64_t launches() const noexcept { return hot + overlay + base + nearest + model + default_; }
};

namespace engine {
struct Bindings;
struct EngineState;
}  // namespace engine
namespace plan {
struct OpState;
struct PlanState;
}  // namespace plan

/// Resources that the first pass of a plan takes of a multiprocessor.
struct Footprint {
  int registers = 0;                  // per thread
  std::int64_t spill_bytes = 0;       // local memory per thread; the largest of all passes
  int blocks_per_multiprocessor = 0;  // resident at once
};

/// A bucket's answers made ready: loaded functions and launch geometry of each config that its sizes pick. Keeps its
/// Engine's resources alive. A moved-from Plan remains valid. A Plan of a fallback keeps serving that fallback after
/// its bucket was tuned in the background. Every member may be called from any thread.
class KILN_API Plan {
 public:
  Plan(const Plan&) = default;
  Plan& operator=(const Plan&) = default;
  ~Plan() = default;
  /// As Op::launch, without the look-up. Throws Error(bad_input) for a problem of another bucket, unless a size of it
  /// is 0.
  Origin launch(const Problem& problem, const Arguments& arguments, Stream stream) const;
  // The members below describe the config of the bucket's upper edge. Other sizes may have other configs; see
  // Engine::explain. For a problem with a size of 0 they are Origin::hot, empty and 0.
  [[nodiscard]] Origin origin() const noexcept;
  [[nodiscard]] std::string_view implementation() const noexcept;
  [[nodiscard]] std::string_view config() const noexcept;  // "threads=256 vector=8"
  /// Median device time of the tune, at the upper edge of the bucket tuned; 0 for Origin::model and Origin::default_.
  [[nodiscard]] double cost_ns() const noexcept;
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept;  // device memory that a stream needs for it
  /// Asks the driver. Throws Error(driver_failed).
  [[nodiscard]] Footprint footprint() const;

 private:
  friend class Op;
  Plan(std::shared_ptr<plan::OpState> op, const plan::PlanState* state, const std::uint64_t* bucket)
      : op_(std::move(op)), state_(state), bucket_(bucket) {}
  std::shared_ptr<plan::OpState> op_;
  const plan::PlanState* state_;  // null for a problem with a size of 0
  const std::uint64_t* bucket_;   // its words
};

/// One op of an engine. Cheap to copy; a moved-from Op remains valid. Every member may be called from any thread.
class KILN_API Op {
 public:
  Op(const Op&) = default;
  Op& operator=(const Op&) = default;
  ~Op() = default;

  using Setting = std::pair<std::string_view, std::variant<std::int64_t, std::string_view>>;
  using Argument = std::pair<std::string_view, std::variant<const void*, std::int64_t, double>>;

  [[nodiscard]] std::string_view name() const noexcept;
  /// The next three throw Error(bad_input) for a name that the op does not have, listing those that it has.
  [[nodiscard]] AxisId axis(std::string_view name) const;
  [[nodiscard]] TensorId tensor(std::string_view name) const;
  [[nodiscard]] RuntimeId runtime(std::string_view name) const;

  /// {{"rows", 1}, {"cols", 4096}, {"dtype", "bf16"}}. Every axis must be given; a type or choice left out takes its
  /// default. A size may be 0, except the number of ranks.
  /// Throws Error(bad_input) naming the axis that is unknown, missing, or out of its range.
  [[nodiscard]] Problem problem(std::span<const Setting> settings) const;
  [[nodiscard]] Problem problem(std::initializer_list<Setting> settings) const {
    return problem(std::span(settings.begin(), settings.size()));
  }
  /// {{"x", x}, {"y", y}, {"epsilon", 1e-6}}. An axis takes the device address of its length, an int32.
  /// Throws Error(bad_input) for a name that the op does not have, and for one that is given twice.
  [[nodiscard]] Arguments arguments(std::span<const Argument> arguments) const;
  [[nodiscard]] Arguments arguments(std::initializer_list<Argument> given = {}) const {
    return arguments(std::span(given.begin(), given.size()));
  }

  /// What bind() begins with: choices, the sizes of axes that no tensor shows, and run-time values. Tensors must agree
  /// with sizes, types and strides that are given here. Throws as problem() and arguments() do.
  [[nodiscard]] Binding binding(std::span<const Setting> settings, std::span<const Argument> values) const;
  [[nodiscard]] Binding binding(std::initializer_list<Setting> settings = {},
                                std::initializer_list<Argument> values = {}) const {
    return binding(std::span(settings.begin(), settings.size()), std::span(values.begin(), values.size()));
  }
  /// Fills a binding() with the problem and the arguments of these tensors: sizes of axes, types, addresses, and those
  /// run-time values that are strides. Tensors of the op that are not given are null. May be called again for other
  /// tensors. Allocates nothing but at the first call with some types and choices.
  ///
  /// Throws Error(bad_input), naming the tensor, for one that is missing or not of this problem, a wrong number of
  /// dimensions, sizes, types or strides that differ from the manifest or from each other, an address that is null or
  /// not a multiple of its element, memory of another device, a view that ends past 64 bits, elements of an output that
  /// share memory, and outputs that share memory with other tensors. An output may be an input if the manifest gives
  /// both one shape and both have the same strides: the op's contract says whether it works in place. launch() checks
  /// the bounds of sizes. A binding that was not bound, or that has refused tensors, is refused by launches.
  void bind(Binding& binding, std::span<const Operand> operands) const;
  void bind(Binding& binding, std::initializer_list<Operand> operands) const {
    bind(binding, std::span(operands.begin(), operands.size()));
  }

  /// What the op takes, as its manifest says it.
  [[nodiscard]] OpDescription describe() const;
  /// The same with the sizes, strides, defaults and bounds of a problem, on this engine's device. Throws
  /// Error(bad_input) for a problem that the op does not have.
  [[nodiscard]] OpDescription describe(const Problem& problem) const;

  /// Launches asynchronously on `stream`. Returns where the config came from.
  ///
  /// A launch of a hot bucket takes no lock, allocates nothing, makes no string, and reads neither file nor clock. The
  /// first launch of sizes that have another config than those before may load it (Loading::lazy). A thread's first
  /// launch of a plan allocates 2.3 KiB of host memory, 0.6 KiB for each pass, and 16 KiB for each TMA descriptor. The
  /// first launch on a stream of a plan that needs a larger workspace allocates it, and may wait for the device to free
  /// those of other streams. On a miss Options::on_miss decides.
  ///
  /// On a capturing stream nothing is tuned, compiled or loaded, and nothing waits for the captured work. Device memory
  /// is allocated there for workspaces alone, in a way that every capture mode allows. A bucket that is not ready, or
  /// sizes with a config that is not loaded, are served by the nearest loaded plan that is legal there
  /// (Origin::nearest). If there is none, or under MissPolicy::error, the launch throws Error(capture). The capture
  /// goes on either way. MissPolicy::background queues the bucket. Engine::prepare before the capture leaves nothing to
  /// miss.
  ///
  /// If a size of the problem is 0, nothing is launched, counted or looked up, and Origin::hot is returned. The
  /// arguments are not read, so addresses may be null. No output changes, even if it lacks the axis of size 0: a
  /// product with k = 0 writes no zeros. For an op of a team, all ranks pass such a problem or none does.
  ///
  /// Throws Error(bad_input) for a size or a run-time value out of range, a missing tensor, an address that no
  /// implementation takes, and a stream of another device. Throws Error(bad_input) for a null length on the device, and
  /// for one of an axis that is not `on_device`. A miss throws as its policy says: Error(not_tuned), Error(no_nvrtc),
  /// Error(compile_failed). A launch that the driver fails throws Error(driver_failed) or Error(out_of_memory).
  ///
  /// Launches are ordered by `stream` alone, and threads may share one. All plans of an engine share one workspace on a
  /// stream. A capture has workspaces of its own, one for each stream that takes part, which its graph keeps: it may
  /// run on any stream, beside any launch and other graphs, after its streams are gone. Two things are the caller's:
  /// - executable graphs that were instantiated from one captured graph share its workspaces, so order them after each
  ///   other;
  /// - until a graph's last launch has ended, keep the Engine, or an Op or Plan of it, which owns the machine code.
  Origin launch(const Problem& problem, const Arguments& arguments, Stream stream) const;

  /// Launches like launch() if nothing must be looked up, loaded, tuned, allocated or waited for. Otherwise launches,
  /// counts and begins nothing, and returns nothing: call launch(), plan() or Engine::prepare when waiting is harmless,
  /// such as without an interpreter's lock. On a capturing stream it is launch(). Throws as launch() does if no wait
  /// would help.
  std::optional<Origin> try_launch(const Problem& problem, const Arguments& arguments, Stream stream) const;

  /// Makes the problem's bucket ready without launching: looks it up, loads it, or tunes it as Options::on_miss says.
  /// Allocates its workspace for `stream`; the per-thread default stream is the calling thread's. A capture on any
  /// stream then finds everything in place but its workspace. This includes the config that serves if the record is
  /// not legal at this size. If the record uses a library, it includes the kernel for lengths on the device. Throws
  /// as launch does; Error(capture) on a capturing stream for a bucket that is not ready.
  Plan plan(const Problem& problem, Stream stream = nullptr) const;

 private:
  friend class Engine;
  friend class Tuner;
  friend struct engine::Bindings;
  explicit Op(std::shared_ptr<plan::OpState> state) : state_(std::move(state)) {}
  std::shared_ptr<plan::OpState> state_;
};

/// What one file answered.
struct LayerAnswer {
  std::string layer;  // "overlay /home/u/.cache/kiln/overlay.kiln"
  /// "record vectorized threads=256 vector=8, 12.3 us" with the config for the problem, "not opened: ...", or what else
  /// of the op it holds: other sizes, types, ...
  std::string found;
  bool opened = true;    // false: it was refused
  bool trusted = false;  // its machine code may be loaded
  std::string trust;     // the reason
};

/// The config that MissPolicy::nearest would launch for a problem, and the reason, whatever the engine's policy. Where
/// no record can serve, MissPolicy::tune would tune and MissPolicy::error would throw.
struct Explanation {
  std::string problem;  // "rows=137 cols=4096 dtype=bf16": without types and choices at their defaults
  std::string bucket;   // likewise; empty where a size is 0
  std::string key;      // the record key as text; empty where a size is 0
  std::vector<LayerAnswer> layers;
  Origin origin = Origin::default_;
  std::string implementation;
  std::string config;
  std::string why;           // one sentence: "the record's config is legal in this bucket", ...
  std::string miss;          // why no record serves, as a member of Misses: "absent", ...; empty when a record serves
  bool stale = false;        // the sources have changed since the config was tuned
  bool cubin_found = false;  // a file supplies the machine code: a launch here needs no compile
  // Which file has it, or why none supplies it and what a launch does then; empty when nothing serves
  std::string machine_code;
  std::string compiler;  // of the machine code that a file supplies, "nvrtc 13.0 build 65be..."; else empty
  std::string nvrtc;     // the NVRTC here, in the same form; empty without one. Code by another one serves too
  std::string
      library;  // the library that computes in place of kernels or beside them, such as "cublaslt 13.1.0"; else empty
  double cost_ns = 0;    // median device time of the tune; 0 for Origin::model and Origin::default_
  std::string timed_at;  // the sizes of cost_ns: "at the bucket's upper edge", "at rows=80", "of the nearest bucket"
  /// Expected time over a tuned config's: 1 for a hit, 0 where it is unknown or nothing serves. For a fallback it is
  /// the median slowdown of such fallbacks in near records. Without those it is what a benchmark of the op found, or
  /// the ratio of the model's estimates.
  double expected_slowdown = 0;
  std::string slowdown_grounds;     // what a fallback's figure rests on, or why it is unknown; empty for a hit
  std::vector<std::string> passes;  // "rms_norm_vectorized<...> grid 512 1 1 block 256 1 1 shared 0"
};

/// A length, an offset or an index in device memory that was negative or past its bound. Kernels clamp lengths, and
/// offsets outside of the tensor. For packed sequences `length` is such an offset, or a sequence's length: negative
/// if offsets fall, or more than the launch gives as the longest, which some configs compute whole and others cut.
struct LengthFault {
  std::string op;
  std::string axis;         // empty for an index
  std::int64_t length = 0;  // or index, clamped to 32 bits
  std::int64_t bound = 0;   // for an index, the rows of its table, at most 2^31 - 1
  std::string tensor;       // that holds the index, such as rotary's positions; else empty
};

/// A problem that a launch would not hit now.
struct Gap {
  std::string op;
  std::string problem;  // "rows=500 cols=4096 dtype=bf16"; empty when the op has no such problem
  std::string bucket;   // "rows=512 cols=4096 dtype=bf16"
  /// The kind of fallback that would serve it on a capturing stream; nothing where such a launch would throw
  /// Error(capture).
  std::optional<Origin> serves;
  bool workspace_missing = false;  // the first launch on the stream, or in each capture, allocates a workspace
  std::string why;                 // one sentence
};

/// Which of some problems launches would hit.
struct Coverage {
  std::int64_t total = 0;  // problems asked about, or buckets where none were named
  /// Problems with a loaded record that is legal at their sizes and has its workspace; and those with a size of 0.
  std::int64_t hits = 0;
  std::vector<Gap> gaps;  // the other problems, in their order
  /// Whether a capture could launch every problem: a fallback serves each gap.
  [[nodiscard]] bool capturable() const noexcept {
    for (const Gap& gap : gaps)
      if (!gap.serves) return false;
    return true;
  }
};

/// Thread-safe. Retains the device's primary context. Plans live until the Engine and all its Ops and Plans are
/// destroyed.
///
/// Constructing, using and destroying an Engine ends no capture of another thread. A launch on the legacy default
/// stream may, as any work on that stream. CUDA does not work in a child of fork: every constructor and member that
/// reaches the driver throws Error(driver_failed) there. Destructors leave the parent's resources alone.
class KILN_API Engine {
 public:
  Engine(const Engine&) = default;
  Engine& operator=(const Engine&) = default;
  ~Engine() = default;
  /// Throws Error(no_driver), Error(no_device), Error(bad_input) for an option out of its range, and Error(io) for a
  /// template path that cannot be listed. An op in one with a wrong manifest is left out, with a warning.
  explicit Engine(const Options& options = {});

  /// Throws Error(bad_input) for an unknown op, listing those that there are, and Error(bad_manifest) for one that was
  /// left out. Under Loading::eager the first call for an op loads its records; one that cannot be loaded is left to
  /// its first launch.
  [[nodiscard]] Op op(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> ops() const;  // their names

  /// Makes every problem's bucket ready once, as Op::plan does, with workspaces for `stream`. A capture then misses
  /// nothing. A bucket that fails becomes a gap with the reason, and the rest go on. Returns what coverage() would
  /// return then. Addresses are not known here: if one is less aligned than a record's config needs, launch it once
  /// before the capture, to load the default. Throws Error(capture) on a capturing stream, Error(bad_input) for another
  /// engine's op or another device's stream, and Error(interrupted).
  Coverage prepare(const Op& op, std::span<const Problem> problems, Stream stream = nullptr) const;
  /// Which of the problems launches on `stream` would hit, and what would serve the rest in a capture. Loads,
  /// compiles and launches nothing. Throws Error(bad_input) for another engine's op.
  [[nodiscard]] Coverage coverage(const Op& op, std::span<const Problem> problems, Stream stream = nullptr) const;
  /// The coverage of each bucket that is ready, at its upper edge and without regard to workspaces.
  [[nodiscard]] Coverage coverage() const;

  /// The buckets of this engine's launches so far, as the text of a workload file, which `kiln prewarm` and
  /// `kiln coverage` read. Buckets that fallbacks were only prepared for are among them. Empty before the first.
  [[nodiscard]] std::string workload() const;

  [[nodiscard]] Stats stats() const;
  /// Explains what MissPolicy::nearest serves. Tunes, compiles, loads and launches nothing. Throws Error(bad_input) for
  /// a problem that the op does not have.
  [[nodiscard]] Explanation explain(const Op& op, const Problem& problem) const;
  /// Waits until nothing is compiled ahead, and, under MissPolicy::background, until every queued bucket was tuned or
  /// has failed. Until then writes to the overlay what was fetched from Options::remote, which is written soon anyway.
  /// Returns false when `limit` passed before.
  bool wait_for_tunes(std::chrono::milliseconds limit) const;
  /// Waits for `stream`, then returns a length that was outside its bound (see Arguments), or an index that was outside
  /// its table, or nothing. For each op and axis, or tensor of indices, only the latest is kept, and each is returned
  /// once, so call it until it returns nothing. Ended launches on other streams count too. Throws Error(capture) on a
  /// capturing stream, Error(driver_failed) for a failure on the stream.
  [[nodiscard]] std::optional<LengthFault> check(Stream stream) const;
  /// Frees the workspaces of all streams, which the next launches allocate again, and those of graphs that are gone.
  /// Waits for the device. Returns the bytes freed.
  std::int64_t trim() const;
  /// Failures that the engine worked around, such as an overlay that cannot be written, each once.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  friend class Tuner;
  [[nodiscard]] KILN_HIDDEN plan::OpState& own(const Op& op) const;
  std::shared_ptr<engine::EngineState> state_;
};

}  // namespace kiln
