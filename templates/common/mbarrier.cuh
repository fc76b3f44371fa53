// Barriers in shared memory that count arrivals of threads and bytes of asynchronous copies (sm_90 and later).
//
// A barrier is 8 bytes, aligned, and named by its shared address. Its phases are numbered from 0. A phase completes
// when all arrivals that it was made for have come, and all bytes that were announced to it. `parity` is the lowest bit
// of a phase's number. A wait for parity p returns once the phase with that parity has completed, which may be the
// current one's predecessor. So a new barrier lets a wait for parity 1 pass at once, and holds one for parity 0.
#pragma once

#include "common/shared_memory.cuh"

namespace kiln {

/// For one thread. Others may use the barrier after fence_mbarrier_init and a barrier of the block, or of the cluster.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes this thread's mbarrier_init seen by the cluster and by the copy engine.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// One arrival, which releases what this thread has written to its block.
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// One arrival at the barrier of block `rank` of the cluster that lies where `barrier` lies in this block; `rank` may be this
/// block's own. Says that asynchronous reads are done. It publishes nothing that this thread has written, since a
/// release to the cluster makes it wait for all of its memory accesses.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned barrier, unsigned rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// One arrival, and `bytes` more that the current phase waits for. They may come from any block of the cluster, before
/// or after.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Whether the phase of this parity has completed; may sleep a while before it says no.
__device__ __forceinline__ bool mbarrier_try_wait(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// Waits for the phase of this parity; what arriving threads of the block and copies wrote before is seen after it.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

}  // namespace kiln
