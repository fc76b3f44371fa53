// Thread block clusters and distributed shared memory, named after the PTX that they wrap. sm_90 and later.
#pragma once

#include "common/shared_memory.cuh"

namespace kiln {

__device__ __forceinline__ unsigned cluster_block_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Arrive and wait order nothing but execution here. Arriving with release waits for all of the thread's accesses to
/// global memory, which costs a block that streams. Data goes through st_async.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

/// Arrives with release: after cluster_wait, every thread of the cluster sees what this one wrote before.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/// The address in block `rank` of the cluster of what lies at shared address `local` in this one.
__device__ __forceinline__ unsigned mapa(unsigned local, unsigned rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(local), "r"(rank));
  return address;
}
__device__ __forceinline__ unsigned mapa(const void* local, unsigned rank) { return mapa(shared_address(local), rank); }

/// ld.shared::cluster.v4.f32 from an address that mapa gave, a multiple of 16.
__device__ __forceinline__ float4 ld_shared_cluster(unsigned from) {
  float4 values;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values.x), "=f"(values.y), "=f"(values.z), "=f"(values.w)
               : "r"(from)
               : "memory");
  return values;
}

/// Makes `barrier` ready for one phase that completes when `bytes` bytes have come through st_async. For one thread; the
/// other blocks may write once they are past a cluster barrier that this thread arrived at.
__device__ __forceinline__ void mbarrier_expect(unsigned long long* barrier, unsigned bytes) {
  const unsigned address = shared_address(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
}

/// Waits for the first phase; what st_async wrote is seen after it.
__device__ __forceinline__ void mbarrier_wait(const unsigned long long* barrier) {
  const unsigned address = shared_address(barrier);
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra again;\n"
      "}" ::"r"(address)
      : "memory");
}

/// Writes 8 bytes to `to` and reports them to `barrier`: both are addresses in one block, that mapa gave.
__device__ __forceinline__ void st_async(unsigned to, float2 value, unsigned barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "f"(value.x), "f"(value.y), "r"(barrier)
               : "memory");
}

}  // namespace kiln
