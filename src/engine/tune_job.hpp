// The work of a kiln::Tuner on the states of engines, one for each GPU. All fill one overlay.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "answer/cubins.hpp"
#include "engine/state.hpp"
#include "jit/compile_pool.hpp"
#include "kiln/tuner.hpp"
#include "manifest/op_bucket.hpp"

namespace kiln::engine {

struct TunerDevice {
  TunerDevice(std::shared_ptr<EngineState> owned, bool shared)
      : engine(std::move(owned)),
        is_shared(shared),
        pool(compile_settings(engine->options)),
        cubins(engine->layers, pool) {}
  std::shared_ptr<EngineState> engine;
  bool is_shared;  // whether an Engine launches with it meanwhile
  /// Separate from the engine's pool, where a launch would wait behind candidates, and a stop would drop its compiles.
  jit::CompilePool pool;
  answer::Cubins cubins;
  std::size_t device_class = 0;  // index into TunerState::first_of_class
};

struct TunerState {
  TunerState(const Options& options, std::span<const int> ordinals);
  explicit TunerState(std::shared_ptr<EngineState> engine);
  [[nodiscard]] EngineState& first() const noexcept { return *devices.front()->engine; }
  [[nodiscard]] std::size_t classes() const noexcept { return first_of_class.size(); }
  /// The device of this rank in the team; null without a team.
  [[nodiscard]] TunerDevice* of_team() const noexcept;

  std::vector<std::unique_ptr<TunerDevice>> devices;
  std::vector<TunerDevice*> first_of_class;
  std::mutex working;  // one call tunes or compiles at a time

 private:
  void add(std::shared_ptr<EngineState> engine, bool is_shared);
};

/// Throws Error(bad_input) within a callback of a tune by one of the tuner's engines.
void refuse_within_callback(const TunerState& tuner);

/// Tuner::tune for distinct buckets.
TuneReport tune_buckets(TunerState& tuner, std::span<const manifest::OpBucket> buckets, const TuneChoice& choice);

}  // namespace kiln::engine
