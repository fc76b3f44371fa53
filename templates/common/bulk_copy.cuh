// Rows copied whole by the copy engine, in turn through places in shared memory (sm_90 and later).
#pragma once

#include "common/mbarrier.cuh"

namespace kiln {

/// cp.async.bulk: `bytes` bytes of global memory to shared memory, reported to `barrier`. Both addresses and the count are multiples of 16.
/// One thread issues it for the block.
__device__ __forceinline__ void bulk_load(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

/// Makes writes to global memory that this thread sees seen by the copies that it then issues.
__device__ __forceinline__ void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// Stages places that are filled and read in turn, each with a barrier. All threads of the block make one, wait for the
/// place that comes next, and go on. One thread announces what comes to a place and copies it there, once all have read
/// what it held.
template <int Stages>
class bulk_ring {
 public:
  struct storage {
    alignas(8) unsigned long long barriers[Stages];
  };

  /// Ends with a barrier of the block.
  __device__ __forceinline__ explicit bulk_ring(storage& shared) : barriers_(shared_address(shared.barriers)) {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int stage = 0; stage < Stages; ++stage) mbarrier_init(barrier(stage), 1);
      fence_mbarrier_init();
    }
    __syncthreads();
  }
  __device__ __forceinline__ unsigned barrier(int stage) const { return barriers_ + stage * 8; }
  __device__ __forceinline__ int stage() const { return stage_; }
  __device__ __forceinline__ void wait() const { mbarrier_wait(barrier(stage_), parity_); }
  __device__ __forceinline__ void advance() {
    stage_ = stage_ + 1 == Stages ? 0 : stage_ + 1;
    parity_ ^= stage_ == 0;
  }

 private:
  unsigned barriers_;
  int stage_ = 0;
  unsigned parity_ = 0;
};

}  // namespace kiln
