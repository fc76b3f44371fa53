// Tunes one bucket: lease, look up, tune, publish. Launches, tunes in the background, kiln::Tuner and the commands use
// it.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "answer/cubins.hpp"
#include "answer/resolver.hpp"
#include "kiln/tuner.hpp"
#include "tune/rank_trials.hpp"

namespace kiln::engine {

struct EngineState;

struct TuneAsked {
  Retune retune = Retune::none;
  /// How long to wait for another process or engine that tunes the same bucket. 0: not at all.
  std::chrono::milliseconds patience = std::chrono::hours(24 * 365);
  bool only_in_worker = false;             // throw Error(bad_input) rather than try candidates in this process
  tune::RankTrials* team = nullptr;        // all ranks tune together; needed for an op of a team
  answer::Cubins* cubins = nullptr;        // null: the engine's, with its pool
  std::function<bool()> stop_requested{};  // beside Options::stop_requested
  std::function<void(const TuneEvent&)> on_event{};        // beside Options::on_tune
  std::function<void(double)> pace{};                      // tune::TuneRequest::pace
  std::function<void(const answer::Resolution&)> adopt{};  // takes the new record, before the tune is counted
};

struct TuneOutcome {
  enum class End { found, tuned, held_elsewhere } end = End::found;
  answer::Resolution resolution;  // of the bucket afterwards, without fallbacks; a hit unless it is held elsewhere
  std::string holder{};           // held elsewhere: store::File::lease_holder
};

/// Marks this thread as tuning with `engine` while it lives. A tune that a callback asks of the same engine would wait
/// for itself.
class WithinTune {
 public:
  explicit WithinTune(const EngineState& engine) noexcept;
  ~WithinTune();
  WithinTune(const WithinTune&) = delete;
  WithinTune& operator=(const WithinTune&) = delete;
  /// Throws Error(bad_input) where this thread tunes with `engine`. `asked` names the refused work, such as "scale
  /// rows=64 cols=128 dtype=f32".
  static void refuse_within(const EngineState& engine, const std::string& asked);
  static bool is_within(const EngineState& engine) noexcept;

 private:
  const EngineState& engine_;
  const WithinTune* const around_;  // the thread's tune of another engine, in whose callback this one began; or null
};

/// Returns a sentence for each implementation of which no candidate was right and some gave a wrong result.
std::vector<std::string> wrong_throughout(std::span<const store::TriedCandidate> candidates);

/// Whether the bucket has a usable record that `retune` spares.
bool is_enough(const answer::Resolution& resolution, Retune retune);

/// Tunes the bucket unless it has a usable record that `retune` spares. Holds EngineState::tune_mutex while it tunes.
/// Precondition without a worker: the context is current. Throws as tune::tune_bucket does, Error(interrupted) when it
/// is stopped while it waits, and Error(bad_input) for a tune within a callback of a tune of `engine`. The files are
/// unchanged then.
TuneOutcome tune_once(EngineState& engine, const manifest::Op& op, const Problem& edge, const TuneAsked& asked);

/// Begins ahead of time the compiles of a tune_once() that will follow, unless it would find a record. What fails is
/// left to that tune.
void compile_ahead(EngineState& engine, const manifest::Op& op, const Problem& edge, const TuneAsked& asked);

}  // namespace kiln::engine
