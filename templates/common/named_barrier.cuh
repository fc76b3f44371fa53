// The block's 16 hardware barriers, for some of its warps. Barrier 0 is that of __syncthreads.
#pragma once

namespace kiln {

/// bar.sync: waits until `threads` threads have come to barrier `id`, by sync or arrive. What they wrote to shared and
/// global memory before is seen after it.
/// REQUIRES: `threads` is a multiple of 32. All lanes of a warp call it together.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// bar.arrive: the same without waiting.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace kiln
