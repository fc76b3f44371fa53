// Boxes of tensors copied by the tensor memory accelerator (sm_90 and later).
//
// A tensor_map, taken as a `const __grid_constant__` parameter, holds a tensor's address, shape and strides, and the
// box that one copy moves. Coordinates are elements and begin at the innermost dimension: x runs along memory. A load
// fills what lies outside of the tensor with zeros, and counts it among the bytes that come; a store leaves it out. In
// shared memory a box lies densely, its innermost row first. With the 128-byte swizzle these rows are 128 bytes, and
// the box begins at a multiple of 1024. The chunk of 16 bytes at index c of row r then lies at index c ^ (r & 7).
//
// One thread issues a copy for the block. Loads report their bytes to an mbarrier; stores are counted in groups by the
// thread that issues them.
#pragma once

#include "common/shared_memory.cuh"
#include "common/types.cuh"

namespace kiln {

/// prefetch.tensormap: fetches the descriptor itself.
__device__ __forceinline__ void prefetch_tensormap(const tensor_map* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// How long L2 keeps what a load brings.
using cache_policy = unsigned long long;

__device__ __forceinline__ cache_policy evict_first_policy() {
  cache_policy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ cache_policy evict_last_policy() {
  cache_policy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Loads the box at (x, y) to shared address `to`, and reports its bytes to `barrier`.
__device__ __forceinline__ void tma_load_2d(unsigned to, const tensor_map* map, unsigned barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_load_2d(unsigned to, const tensor_map* map, unsigned barrier, int x, int y,
                                            cache_policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(policy)
      : "memory");
}

/// Copies to every block of the cluster that `blocks` has a bit for. Each gets the box at its own address `to`, and its
/// bytes are reported to its own barrier at `barrier`.
__device__ __forceinline__ void tma_load_2d_multicast(unsigned to, const tensor_map* map, unsigned barrier, int x,
                                                      int y, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}
__device__ __forceinline__ void tma_load_2d_multicast(unsigned to, const tensor_map* map, unsigned barrier, int x,
                                                      int y, unsigned short blocks, cache_policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks), "l"(policy)
      : "memory");
}

/// Copies in three dimensions, z outermost.
__device__ __forceinline__ void tma_load_3d(unsigned to, const tensor_map* map, unsigned barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tma_load_3d_multicast(unsigned to, const tensor_map* map, unsigned barrier, int x,
                                                      int y, int z, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

/// Copies in four dimensions, w outermost.
__device__ __forceinline__ void tma_load_4d(unsigned to, const tensor_map* map, unsigned barrier, int x, int y, int z,
                                            int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

/// Copies in five dimensions, u outermost.
__device__ __forceinline__ void tma_load_5d(unsigned to, const tensor_map* map, unsigned barrier, int x, int y, int z,
                                            int w, int u) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(u)
      : "memory");
}

/// Brings the box at (x, y) to L2 alone.
__device__ __forceinline__ void tma_prefetch_2d(const tensor_map* map, int x, int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void tma_prefetch_3d(const tensor_map* map, int x, int y, int z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y), "r"(z)
               : "memory");
}

/// Makes this thread's writes to shared memory visible to copies and wgmma, which take another path.
/// REQUIRES: the thread that issues them waits at a barrier after this call.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Stores shared memory from `from` as the box at (x, y).
__device__ __forceinline__ void tma_store_2d(const tensor_map* map, unsigned from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y)
               : "memory");
}

__device__ __forceinline__ void tma_store_3d(const tensor_map* map, unsigned from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y), "r"(z)
               : "memory");
}

/// The stores issued by this thread since the last commit become one group.
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until all but this thread's `pending` latest groups have read their shared memory, which may then be written.
template <int pending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

}  // namespace kiln
