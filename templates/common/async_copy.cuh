// Asynchronous copies from global to shared memory, 16 bytes a thread (sm_80 and later).
#pragma once

#include "common/shared_memory.cuh"

namespace kiln {

/// cp.async.cg.shared.global of 16 bytes, past L1; reads nothing and writes zeros when `read` is false. Both sides
/// 16-byte aligned. All or nothing, which the instruction can do by a predicate: any other byte count costs address
/// arithmetic at each copy.
__device__ __forceinline__ void cp_async_16(unsigned to_shared, const void* from_global, bool read) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from_global),
               "r"(read ? 16 : 0)
               : "memory");
}

/// Copies through L1 (cp.async.ca), for what other warps of the multiprocessor are about to read too.
__device__ __forceinline__ void cp_async_ca_16(unsigned to_shared, const void* from_global, bool read) {
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from_global),
               "r"(read ? 16 : 0)
               : "memory");
}

/// cp.async.commit_group: the copies issued by this thread since the last commit become one group.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// cp.async.wait_group: waits until at most `pending` of this thread's latest groups are under way.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace kiln
