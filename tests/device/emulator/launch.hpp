// Runs a kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

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

/// One of the grids that run together, as the ranks of a team do. The seed is the first one's.
struct Grid {
  Launch launch;
  std::function<void()> kernel;
  unsigned resident = 0;         // clusters that run at once, in order of their numbers; 0: all
  int after = -1;                // grid that ends before this one begins, as in a stream
  std::function<void()> before;  // called when it begins, where there is one
};

/// As launch(), for grids whose threads wait for each other.
Account launch_together(std::span<const Grid> grids);

}  // namespace emulator
