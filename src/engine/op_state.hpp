// The state of one op of an engine, which its launches share. Launches: hit_path.hpp, miss_path.hpp, refused_launch.hpp. Captures:
// capture_launch.hpp.
#pragma once

#include <cstdint>

#include "engine/plan_store.hpp"
#include "kiln/engine.hpp"
#include "manifest/bucketing.hpp"

namespace kiln::engine {

struct State;

struct OpState {
  OpState(State& engine_state, std::size_t index_in_engine);
  [[nodiscard]] const manifest::DeviceFacts& device() const noexcept;
  /// The op on this engine's device, in its regime.
  [[nodiscard]] manifest::Site site() const noexcept;
  /// answer::resolve for this engine's device, regime and files.
  [[nodiscard]] answer::Resolution resolve(const Problem& problem, bool fallbacks) const;
  /// Whether fallbacks serve a bucket without a record, rather than a tune or an error.
  [[nodiscard]] bool takes_fallbacks() const noexcept;

  State& engine;
  const manifest::Op& op;
  const manifest::Bucketing bucketing;
  PlanStore plans;
  const std::uint32_t index;    // into State::ops
  std::uint32_t on_device = 0;  // bit i: axis i may have its length on the device
  bool reports = false;         // kernels may report lengths
};

}  // namespace kiln::engine
