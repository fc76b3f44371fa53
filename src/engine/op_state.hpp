// One op of an engine: what the paths of its launches share. Hit path: hit_path.hpp. Miss path: miss_path.hpp. Where a plan cannot serve:
// fallback.hpp. What a capture would find: coverage.hpp.
#pragma once

#include <cstdint>

#include "engine/capture_guard.hpp"
#include "engine/plan_store.hpp"
#include "kiln/engine.hpp"
#include "manifest/bucketing.hpp"

namespace kiln::engine {

struct State;

struct OpState {
  OpState(State& engine_state, std::size_t index_in_engine);
  [[nodiscard]] const manifest::DeviceFacts& device() const noexcept;
  /// As the resolver answers on this engine's device.
  [[nodiscard]] Resolution resolve(const Problem& problem, bool stand_ins) const;
  /// Whether a bucket without a record is served by what stands in, rather than tuned or refused.
  [[nodiscard]] bool takes_stand_ins() const noexcept;

  State& engine;
  const manifest::Op& op;
  const manifest::Bucketing bucketing;
  PlanStore plans;
  CaptureGuard captures;
  const std::uint32_t index;    // of the op in the engine
  std::uint32_t on_device = 0;  // bit i: axis i may have its length on the device
};

}  // namespace kiln::engine
