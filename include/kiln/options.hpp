// How an Engine is set up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/export.h"

struct CUstream_st;

namespace kiln {

class Team;

/// What a launch does when no record can serve its bucket.
enum class MissPolicy : std::uint8_t {
  // Wait for a tune, then launch the winner; needs NVRTC. After five minutes of another process's or engine's tune, or
  // where the tune lacks memory: as `nearest`, with a warning, until a Tuner of the engine tunes the bucket. An op of a
  // team throws Error(out_of_memory) on all ranks
  tune,
  // Launch what `nearest` would, tune in a worker process, then launch the winner; needs NVRTC and kiln-worker. An op
  // of a team is served as by `nearest` and not tuned
  background,
  // Never tune: launch a config of a record near enough, else the model's choice, else the default. The ranks of a team
  // agree on one. See docs/deployment.md
  nearest,
  error,  // throw Error(not_tuned)
};

/// How the candidates of a bucket are searched.
enum class Strategy : std::uint8_t {
  racing,      // the most promising first; those that cannot win get a few samples; a fraction of the space is compiled
  exhaustive,  // every candidate
};

KILN_API std::string_view to_string(Strategy strategy) noexcept;  // "racing", "exhaustive"

/// Limits of one bucket's tune.
struct SearchSettings {
  Strategy strategy = Strategy::racing;
  std::int64_t trials = 0;  // the most candidates with the baseline, half of them a library's at most; 0: no limit
  /// After this no candidate is begun, and the best so far are compared. 0: no limit.
  std::chrono::milliseconds time_limit{0};
  std::uint64_t seed = 1;  // for the random choices of racing: one seed and the same costs give the same trials
  /// A file to which each tune of one device appends a line: all that the search asked, and what it was answered. With
  /// it the search can be repeated where there is no such device. Empty: nothing is written.
  std::filesystem::path samples{};
};

/// The state of the L2 cache in which costs are measured: flushed, or holding the inputs. Part of the record key.
enum class Regime : std::uint8_t { cold_l2, hot_l2 };

/// Which base files may supply machine code. All other bases supply records, checked against what the op declares, and
/// their kernels are compiled.
enum class TrustPolicy : std::uint8_t {
  owner,  // root or this user owns file and folder, and nobody else may write them; or a trusted key signed the file
  signed_files,  // a trusted key signed the file
};

/// One step of a tune. Its texts are valid during the call of Options::on_tune.
struct TuneEvent {
  enum class Kind : std::uint8_t {
    waiting,  // another process or engine tunes the same bucket: `reason` names it. Reported once, after half a second
    begun,
    candidate,
    finished
  } kind = Kind::begun;
  std::string_view op;
  std::string_view bucket;          // with all types and choices
  std::string_view implementation;  // the candidate's; the winner's when finished
  std::string_view config;          // likewise
  std::string_view verdict;         // "ok", "wrong_result", ...
  std::string_view reason;          // of every verdict but "ok"; or who tunes the bucket
  std::int64_t done = 0;            // candidates tried so far
  std::int64_t total = 0;           // candidates in all
  double cost_ns = 0;               // median device time of the candidate; of the winner when finished
  double best_ns = 0;               // the lowest so far
  double baseline_ns = 0;           // the default's; 0 until it was timed
};

/// Where compiles and the candidates of a tune run.
enum class Isolation : std::uint8_t {
  automatic,  // in worker processes where kiln-worker is found, else in this process
  // In worker processes: a compile or candidate that crashes or hangs fails alone; if its worker is killed, it is tried
  // again
  worker,
  in_process,  // in threads and the context of this process, which a crash of the compiler or an illegal address breaks
};

/// When the machine code of records is loaded into the context.
enum class Loading : std::uint8_t {
  lazy,  // at the bucket's first launch or plan, or at the first launch of sizes that have another config
  // At the first Engine::op of the op: every record for this device and regime with machine code in a file. Compiles
  // nothing
  eager,
};

/// Whether engines compile.
enum class Compile : std::uint8_t {
  when_needed,
  never,  // NVRTC is not opened. What no file has is Error(no_nvrtc), or a default's turn, as where there is no NVRTC
};

/// Device memory for workspaces, such as a framework's own pool. Both or neither. An engine calls them on any thread,
/// one at a time, until it and all its ops, plans and tuners are gone. The device's primary context is current, and the
/// thread's capture mode is relaxed. Neither may call the engine, nor wait for a thread that does.
struct WorkspaceAllocator {
  /// Returns so many bytes for work on `stream`. Work that was enqueued on the stream before may still use them.
  /// `captured`: the stream captures, and its graph uses them until `free`, which comes after the driver has destroyed
  /// the graph; no other work may use them. Null, or an exception: none are left. Then idle streams give theirs back,
  /// and it is called again; if that fails, the launch throws Error(out_of_memory). An address that is not a
  /// multiple of 256 is given back, and the launch throws Error(bad_input).
  std::function<void*(std::size_t bytes, CUstream_st* stream, bool captured)> allocate;
  /// Called when no further launch uses them. Work that was enqueued before may still: reuse them in order with
  /// `stream` where that is known to live, else wait for the device. Null: the handle may name another stream by now,
  /// as after a capture, for CU_STREAM_PER_THREAD, and where a new stream has it; or the stream was null. Must not
  /// throw.
  std::function<void(void* address, std::size_t bytes, CUstream_st* stream)> free;
};

/// What an engine reports while it works. Its texts are valid during the call of Options::on_log.
struct LogEvent {
  enum class Level : std::uint8_t { info, warning } level = Level::info;
  enum class Kind : std::uint8_t {
    warning,   // what Engine::warnings() has, too
    tune,      // a bucket's tune begins, ends, or waits for another process's; a failure is a warning, or thrown
    compile,   // a specialisation was compiled, or failed to
    fallback,  // a fallback serves a bucket from now on
    swap,      // what was tuned or compiled in the background serves in a fallback's place
  } kind = Kind::warning;
  std::string_view op;      // empty if it is of none
  std::string_view bucket;  // likewise
  std::string_view text;    // one sentence
};

/// Where records, machine code and ops come from.
struct FileOptions {
  /// The user's own file, created when missing. Nothing: $KILN_CACHE, else kiln/overlay.kiln in the user's cache
  /// folder. An empty path, here or in $KILN_CACHE, keeps records in memory. A read-only file of the user is asked as
  /// the first base, and records are kept in memory.
  std::optional<std::filesystem::path> overlay = {};
  /// Shipped files, .kiln or .jsonl (text, without machine code), asked in order after the overlay. Never written.
  std::vector<std::filesystem::path> bases = {};
  /// Refuses to start, with Error(bad_file), where a base is missing or refused, or may not supply the machine code
  /// that it holds. Otherwise Engine::warnings() says so, and the program goes on without.
  bool require_bases = false;
  /// Folders that hold op folders, searched before $KILN_TEMPLATE_PATH and the built-in ops.
  std::vector<std::filesystem::path> template_paths = {};
  /// Nothing: $KILN_TRUST, which is "owner" or "signed", else owner.
  std::optional<TrustPolicy> trust = {};
  /// Folders of public keys (NAME.pem, Ed25519): a signature by one lets a base supply machine code. None:
  /// $KILN_TRUSTED_KEYS, separated by colons, else kiln/trusted in the user's configuration folder. /etc/kiln/trusted
  /// is always searched too.
  std::vector<std::filesystem::path> trusted_keys = {};
  /// A store that machines share, asked for a bucket that no file has a record of, and given what is tuned: the full
  /// path of a folder. Nothing: $KILN_REMOTE. Empty: none. A launch waits for it a second at most. While it fails the
  /// engine does without. See docs/sharing.md.
  std::optional<std::string> remote = {};
  /// The private Ed25519 key that signs what goes to `remote`. Without one records are shared and machine code is not.
  /// Empty: $KILN_SIGNING_KEY, else none.
  std::filesystem::path signing_key = {};
  /// The largest size of the overlay; 0: no limit.
  std::int64_t overlay_limit_bytes = std::int64_t{1} << 30;
};

/// What launches do and hold.
struct LaunchOptions {
  MissPolicy on_miss = MissPolicy::tune;
  Loading loading = Loading::lazy;
  /// Device memory that workspaces of streams may take. Past it those of streams that have not launched for long are
  /// freed, which waits for the device. A launch that needs more gets it all the same. Graphs' workspaces do not count.
  /// 0: an eighth of the device's memory.
  std::int64_t workspace_limit_bytes = 0;
  /// Device memory for workspaces from the caller. Neither: the driver's.
  WorkspaceAllocator workspace_allocator = {};
  /// Whether one launch in 16 is counted by its real problem. A thread writes the counts to the overlay each minute,
  /// for `kiln prewarm --from-histogram` and `kiln coverage`.
  bool histogram = true;
};

/// How machine code is made that no file has, and the processes that make and try it.
struct CompileOptions {
  Compile compile = Compile::when_needed;
  /// The path of libnvrtc.so. Empty: $KILN_NVRTC_LIBRARY, else looked for (docs/environment.md). A process opens one
  /// NVRTC: where another is open already, Engine::warnings() says so, and that one serves.
  std::filesystem::path nvrtc = {};
  /// The most compiles at a time; 0: one for each core that the process may use: by its affinity, and by its control
  /// group's limit.
  int compile_workers = 0;
  /// The most compiles at a time, in processes of low priority, of machine code that no launch waits for yet: of the
  /// buckets that are likely next where one had none, and of those that a stand-in serves. -1: half of compile_workers,
  /// and at least one. 0: none, and launches wait for their own code. None without kiln-worker either. See
  /// docs/deployment.md.
  int compile_ahead = -1;
  Isolation isolation = Isolation::automatic;
  /// The program kiln-worker, built of the same sources as this library, in which compiles and candidates run. Empty:
  /// $KILN_WORKER ("none": no worker), else beside libkiln or in kiln-0 there, else beside the running program, else
  /// where Kiln was installed. A program that embeds Kiln statically ships kiln-worker beside itself, or names it here.
  /// One that is found, not named, is passed over with a warning in two cases: it says that it was built of other
  /// sources; or another user than root or the library's owner has it or its folder, or others may write them.
  std::filesystem::path worker = {};
  /// A compile in a worker that takes longer, or more memory, is stopped and fails alone. 0 bytes: no limit.
  std::chrono::milliseconds compile_limit{120'000};
  std::int64_t compile_memory_bytes = std::int64_t{4} << 30;
};

/// How buckets are tuned.
struct TuneOptions {
  Regime regime = Regime::cold_l2;
  SearchSettings search = {};
  /// MissPolicy::background: the share of the GPU's time that tuning may take, over 0 and up to 1. A worker that tunes
  /// holds a context and one bucket's tensors in device memory.
  double background_share = 0.05;
  /// A candidate in a worker that takes longer is stopped and rejected.
  std::chrono::milliseconds candidate_limit{60'000};
  /// Called between candidates and while another process tunes the bucket, on the thread that tunes. True ends the tune
  /// with Error(interrupted), and keeps what was finished. A tune of this engine asked for in here or in on_tune throws
  /// Error(bad_input).
  std::function<bool()> stop_requested = {};
  /// Called on the thread that tunes. An exception ends the tune; that of a tune in the background becomes a warning.
  /// Neither callback may end its thread, by pthread_exit or cancellation.
  std::function<void(const TuneEvent&)> on_tune = {};
};

/// How an Engine is set up. Each group may be filled on its own: `static_cast<kiln::FileOptions&>(options) = files`.
struct Options : FileOptions, LaunchOptions, CompileOptions, TuneOptions {
  int device = 0;  // ordinal
  /// The ranks that compute ops with a team axis together, on this engine's device, which is Team::device(). Nothing:
  /// launches of these ops throw Error(bad_input). A plan of such an op is made by all ranks at once, in the same order
  /// on each (see docs/teams.md). If one rank has Isolation::worker, a tune without workers throws on all ranks.
  std::shared_ptr<Team> team;
  /// Called for each LogEvent, on the thread on which it happens, by several threads at once. What it throws is
  /// dropped. It must not call the engine. It may release the engine, which then ends on another thread, at some time
  /// after that. Nothing: Engine::warnings() keeps the warnings, as it does with a callback.
  std::function<void(const LogEvent&)> on_log;
};

}  // namespace kiln
