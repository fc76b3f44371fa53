// Runs a kernel.
#pragma once

#include <cstdint>
#include <functional>

#include "emulator/vectors.hpp"

namespace emulator {

/// The clusters run one after another, the threads of one in turns.
struct Launch {
  dim3 grid, block;
  unsigned shared_bytes = 0;  // dynamic
  dim3 cluster = {};
  /// 0: threads take turns, and what is asynchronous happens as late as it may. Others: orders of all kinds.
  std::uint32_t seed = 0;
};

/// What a launch did that no result shows.
struct Account {
  /// Of a box that TMA loaded, most rows that lie outside of the tensor: the hardware takes longer over these than over others.
  std::uint32_t most_rows_outside = 0;
};

/// Calls `kernel` in every thread. Throws Fault for what a thread did wrong, for what was left undone at a block's end, and for a
/// deadlock, with what each thread waits for.
Account launch(const Launch& launch, const std::function<void()>& kernel);

}  // namespace emulator
