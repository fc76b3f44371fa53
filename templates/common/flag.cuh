// Flags in global memory, by which a block hands others what it wrote there. sm_70 and later.
//
// A flag is zero before a launch and after it: who waits lowers it. So one buffer, zeroed once, serves launch after launch.
// A block may wait only for blocks of lower numbers, which the device starts first: else those might wait for its place.
#pragma once

namespace kiln {

/// st.release.gpu: raises the flag. After a barrier of its block, for what all threads before the barrier wrote.
__device__ __forceinline__ void flag_raise(unsigned* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1u) : "memory");
}

/// ld.acquire.gpu: whether it is raised.
__device__ __forceinline__ bool flag_is_raised(const unsigned* flag) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value != 0;
}

/// Waits until it is raised, and lowers it. For one thread; others see what was handed over after a barrier of the block.
__device__ __forceinline__ void flag_take(unsigned* flag) {
  while (!flag_is_raised(flag)) {
  }
  *flag = 0;
}

}  // namespace kiln
