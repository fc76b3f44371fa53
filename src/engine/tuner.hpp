// The state behind kiln::Tuner: an engine's state for each GPU. All fill one overlay.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/state.hpp"
#include "engine/tuning.hpp"
#include "kiln/tuner.hpp"
#include "manifest/op_bucket.hpp"

namespace kiln::engine {

using manifest::OpBucket;

struct TunerDevice {
  explicit TunerDevice(std::shared_ptr<State> engine, bool is_shared);
  std::shared_ptr<State> state;
  bool is_shared;  // whether an Engine launches with this state meanwhile
  /// Separate from the engine's pool, where a launch would wait behind candidates, and a stop would drop its compiles.
  jit::CompilePool pool;
  answer::Cubins cubins;
  std::size_t device_class = 0;  // index into TunerState::first_of_class
};

struct TunerState {
  TunerState(const Options& options, std::span<const int> ordinals);
  explicit TunerState(std::shared_ptr<State> engine);
  [[nodiscard]] State& first() const noexcept { return *devices.front()->state; }
  [[nodiscard]] std::size_t classes() const noexcept { return first_of_class.size(); }
  /// The device of this rank in the team; null without a team.
  [[nodiscard]] TunerDevice* of_team() const noexcept;

  std::vector<std::unique_ptr<TunerDevice>> devices;
  std::vector<TunerDevice*> first_of_class;
  std::mutex working;  // one call tunes or compiles at a time

 private:
  void add(std::shared_ptr<State> state, bool is_shared);
};

/// Throws Error(bad_input) for an unknown op, listing those that there are.
std::size_t index_of(const State& state, std::string_view name);
const manifest::Op& op_named(const State& state, std::string_view name);

/// The distinct buckets of some demands, of the first device's ops. Throws Error(bad_input) for a demand that is no problem of its op.
std::vector<OpBucket> buckets_of(TunerState& tuner, std::span<const Demand> demands);
/// Tuner::tune. The ops of the buckets outlive the call.
TuneReport tune_all(TunerState& tuner, std::span<const OpBucket> buckets, const TuneChoice& choice);
/// Tuner::deploy for one class of device; `path` may be empty.
Deployment deploy(TunerState& tuner, std::size_t device_class, std::span<const OpBucket> buckets,
                  const std::filesystem::path& path, const TuneChoice& choice);

}  // namespace kiln::engine
