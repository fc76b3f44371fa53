// One bucket brought to a record: lease, look up, tune, publish. Launches, tunes in the background, kiln::Tuner and the commands all
// come by here.
#pragma once

#include <chrono>
#include <functional>

#include "engine/resolver.hpp"
#include "kiln/tuner.hpp"

namespace kiln::engine {

struct State;

struct OpBucket {
  const manifest::Op* op = nullptr;
  Problem bucket;  // upper edges
  bool operator==(const OpBucket&) const = default;
};

struct TuneAsked {
  Retune retune = Retune::none;
  /// How long another process, or engine, that tunes the same bucket is waited for. 0: not at all.
  std::chrono::milliseconds patience = std::chrono::hours(24 * 365);
  bool only_in_worker = false;             // throw Error(bad_input) rather than try candidates in this process
  tune::Cubins* cubins = nullptr;          // null: the engine's, with its pool
  std::function<bool()> stop_requested{};  // beside Options::stop_requested
  std::function<void(const TuneEvent&)> on_event{};  // beside Options::on_tune
  std::function<void(double)> pace{};                // tune::TuneRequest::pace
  std::function<void(const Resolution&)> adopt{};    // takes the new record, before the tune is counted
};

struct TuneOutcome {
  enum class End { found, tuned, held_elsewhere } end = End::found;
  Resolution resolution;  // of the bucket as it is then, without stand-ins; a hit unless it is held elsewhere
  std::string holder{};   // held elsewhere: by whom, as store::File::lease_holder says
};

/// While it lives, this thread tunes with `state`. What a callback on this thread then asks of the same state would wait for itself.
class Tuning {
 public:
  explicit Tuning(const State& state) noexcept;
  ~Tuning();
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;
  /// Throws Error(bad_input) where this thread tunes with `state`. `asked` says what for: "scale rows=64 cols=128 dtype=f32".
  static void refuse_within(const State& state, const std::string& asked);
  static bool is_within(const State& state) noexcept;

 private:
  const State& state_;
  const Tuning* const around_;  // of another engine, in whose callback this one began
};

/// A bucket that has a usable record, of those that `retune` spares, is left as it is. Holds State::tune_mutex while it tunes. Without a
/// worker the context must be current. Throws as tune::tune_bucket does, and Error(interrupted) when asked to stop while it waits: the
/// files are then as they were; Error(bad_input) within a callback of a tune of `state`, where there is no usable record.
TuneOutcome tune_once(State& state, const manifest::Op& op, const Problem& bucket, const TuneAsked& asked);

}  // namespace kiln::engine
