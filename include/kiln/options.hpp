// How an Engine is set up.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

/// What a launch does when no record exists for its bucket.
enum class MissPolicy : std::uint8_t {
  tune,        // block and tune, then launch the winner; needs NVRTC
  background,  // serve what `nearest` would at once, tune in a worker process beside it, then swap the winner in; needs both
  nearest,  // never tune: a near record if one is legal here, else the model's choice, else the default
  error,    // throw Error(not_tuned)
};

/// How the candidates of a bucket are searched.
enum class Strategy : std::uint8_t {
  racing,  // in the order of what is expected of them; those that cannot win get a few samples; a fraction of the space is compiled
  exhaustive,  // every candidate
};

std::string_view to_string(Strategy strategy) noexcept;  // "racing", "exhaustive"

/// What one bucket's tune may cost.
struct SearchSettings {
  Strategy strategy = Strategy::racing;
  std::int64_t trials = 0;  // candidates at most, the baseline among them; 0: no limit
  std::chrono::milliseconds time_limit{
      0};                  // after this no candidate is begun, and the best so far are compared; 0: no limit
  std::uint64_t seed = 1;  // of the draws of racing: the same seed and costs give the same trials
};

/// Which L2 state costs are measured in; part of the record key.
enum class Regime : std::uint8_t { cold_l2, hot_l2 };

/// Which base files may supply machine code. One that may not still supplies records, checked against what the op
/// declares; what it would have loaded is compiled. The overlay is the user's own and has rules of its own.
enum class TrustPolicy : std::uint8_t {
  owner,  // file and folder belong to root or this user and nobody else may write them; or a trusted key signed it
  signed_files,  // a trusted key signed it
};

/// One step of a tune, for those who watch.
struct TuneEvent {
  enum class Kind : std::uint8_t {
    waiting,  // another process or engine tunes the same bucket: `reason` says which. Told once, when it takes longer than a moment
    begun,
    candidate,
    finished
  } kind = Kind::begun;
  std::string_view op;
  std::string_view bucket;  // with all types and choices: "rows=512 cols=4096 dtype=bf16 residual=none quantise=none"
  std::string_view implementation;  // of the candidate; of the winner when finished
  std::string_view config;
  std::string_view verdict;  // "ok", "wrong_result", ...
  std::string_view reason;   // for every verdict but ok; who is waited for
  std::int64_t done = 0;     // candidates tried
  std::int64_t total = 0;    // candidates in all
  double cost_ns = 0;        // of the candidate; of the winner when finished
  double best_ns = 0;        // so far
  double baseline_ns = 0;    // 0 until it was timed
};

/// Where compiles and the candidates of a tune run.
enum class Isolation : std::uint8_t {
  automatic,  // in worker processes where kiln-worker is found, else in this one
  worker,  // in worker processes: a compile or a candidate that crashes or hangs fails alone, and nothing of this process is touched
  in_process,  // in threads of this process, and in its context: one crash of the compiler or one illegal address breaks it
};

/// When the machine code of a file's records is brought to the device.
enum class Loading : std::uint8_t {
  lazy,   // a bucket's at its first launch or plan
  eager,  // all of an op's when Engine::op first gives it: every bucket that a file has a record of for this device and regime, and
          // machine code. Nothing is compiled for it
};

struct Options {
  int device = 0;
  /// The user's own file, created when missing. Nothing: $KILN_CACHE, else kiln/overlay.kiln in the user's cache folder.
  /// Empty path: kept in memory. One of the user's own that may only be read is asked as the first base, and nothing is kept.
  std::optional<std::filesystem::path> overlay;
  /// Tuned files that were shipped, .kiln or .jsonl (text, without machine code), asked in order after the overlay. Never written.
  std::vector<std::filesystem::path> bases;
  /// Folders that hold op folders, asked before KILN_TEMPLATE_PATH and the built-in ops.
  std::vector<std::filesystem::path> template_paths;
  /// Nothing: $KILN_TRUST, which is "owner" or "signed", else owner.
  std::optional<TrustPolicy> trust;
  /// Folders of public keys (NAME.pem, Ed25519) whose signature lets a base supply machine code. None:
  /// $KILN_TRUSTED_KEYS, separated by colons, else kiln/trusted in the user's configuration folder. The machine's own
  /// folder, /etc/kiln/trusted, is always asked too.
  std::vector<std::filesystem::path> trusted_keys;
  /// The largest size of the overlay; 0: no limit.
  std::int64_t overlay_limit_bytes = std::int64_t{1} << 30;
  MissPolicy on_miss = MissPolicy::tune;
  Loading loading = Loading::lazy;
  /// MissPolicy::background: the share of the GPU's time that tuning may take, over 0 and up to 1. While it tunes, the worker holds a
  /// context of its own and one bucket's tensors in the device's memory.
  double background_share = 0.05;
  /// Count which real problems are launched, one launch in 16, and keep the counts in the overlay: `kiln prewarm --from-histogram`
  /// and `kiln coverage` go by them. A thread of the engine writes them each minute; the hit path pays a few instructions.
  bool histogram = true;
  Regime regime = Regime::cold_l2;
  SearchSettings search;
  /// Compiles at once; 0: one for each core.
  int compile_workers = 0;
  Isolation isolation = Isolation::automatic;
  /// The program kiln-worker, in which compiles and candidates run. It is installed beside the command `kiln` and must be of the same
  /// version as this library. Empty: $KILN_WORKER ("none": do without), else beside the
  /// running program, else beside libkiln or in ../bin or ../../bin from there, else where Kiln was installed. A program that embeds Kiln
  /// ships it beside itself, or names it here.
  std::filesystem::path worker;
  /// A compile in a worker that takes longer than this, or more memory than that, is stopped and fails alone; 0 bytes: no limit.
  std::chrono::milliseconds compile_limit{120'000};
  std::int64_t compile_memory_bytes = std::int64_t{4} << 30;
  /// A candidate that takes longer than this in a worker is stopped and rejected.
  std::chrono::milliseconds candidate_limit{60'000};
  /// Asked between candidates, and while another process holds what is waited for, on whichever thread does; true ends a tune with
  /// Error(interrupted). What was finished is kept. Neither this nor on_tune may ask the engine for another tune: Error(bad_input).
  std::function<bool()> stop_requested;
  /// Called on the thread that tunes. What it throws ends the tune; of one in the background, it becomes a warning.
  std::function<void(const TuneEvent&)> on_tune;
};

}  // namespace kiln
