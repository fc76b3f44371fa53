// Registers moved between the warpgroups of a block (sm_90a).
//
// Every warp of a warpgroup executes the same one. The kernel is compiled for the registers that __launch_bounds__
// leaves a thread; `registers` is a multiple of 8 from 24 to 256. Without __launch_bounds__, ptxas ignores both
// (advisory C7508).
#pragma once

namespace kiln {

/// Waits until the block's pool has as many as this warp lacks.
template <int registers>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/// Gives what this warp has beyond `registers` to the block's pool.
template <int registers>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace kiln
