// Thread block clusters and distributed shared memory, named after the PTX that they wrap. sm_90 and later.
#pragma once

namespace kiln {

__device__ __forceinline__ unsigned cluster_block_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Release: what this thread wrote to the cluster's shared memory is seen by those past the wait.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// The address of `local`, a shared variable of this block, in block `rank` of the cluster.
__device__ __forceinline__ unsigned mapa(const void* local, unsigned rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(static_cast<unsigned>(__cvta_generic_to_shared(local))), "r"(rank));
  return address;
}

/// Stores to an address that mapa gave.
__device__ __forceinline__ void store_cluster(unsigned address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
__device__ __forceinline__ void store_cluster(unsigned address, float2 value) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(value.x), "f"(value.y) : "memory");
}

}  // namespace kiln
