// Sums in global memory that the copy engine adds to (sm_90 and later).
#pragma once

namespace kiln {

/// cp.reduce.async.bulk: adds `bytes` bytes of floats in shared memory to those at `to` in global memory, each in no order that is known.
/// Both addresses and the count are multiples of 16. One thread issues it for the block, in a group of tma_store_commit.
__device__ __forceinline__ void bulk_add(float* to, unsigned from, unsigned bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}

}  // namespace kiln
