// The kernels of bench_team_probe: pushes into a peer's memory, and flags there. Every wait ends after two seconds.
#pragma once

#include "common/bulk_copy.cuh"

namespace probe {

using kiln::shared_address;
using u64 = unsigned long long;

constexpr u64 longest_wait_ns = 2000000000;

__device__ __forceinline__ u64 now_ns() {
  u64 ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

/// cp.async.bulk: shared memory to global memory, as a bulk group of its own. Addresses and count are multiples of 16.
__device__ __forceinline__ void bulk_store(void* to, unsigned from, unsigned bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}
/// Waits until all but the last `Pending` stores of this thread have read their source.
template <int Pending>
__device__ __forceinline__ void wait_until_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
/// Waits until all stores of this thread are complete.
__device__ __forceinline__ void wait_until_stored() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

__device__ __forceinline__ bool mbarrier_wait_bounded(unsigned barrier, unsigned parity) {
  const u64 begin = now_ns();
  while (!kiln::mbarrier_try_wait(barrier, parity))
    if (now_ns() - begin > longest_wait_ns) return false;
  return true;
}

__device__ __forceinline__ void store_release(unsigned* flag, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ bool wait_for_flag(const unsigned* flag, unsigned value) {
  const u64 begin = now_ns();
  for (;;) {
    unsigned found;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(flag) : "memory");
    if (found == value) return true;
    if (now_ns() - begin > longest_wait_ns) return false;
  }
}

__device__ __forceinline__ uint4 pattern(u64 vector, unsigned seed) {
  const unsigned first = static_cast<unsigned>(vector) * 4 + seed;
  return make_uint4(first, first * 3, first * 5, first * 7);
}
__device__ __forceinline__ unsigned differing(uint4 a, uint4 b) {
  return (a.x != b.x) + (a.y != b.y) + (a.z != b.z) + (a.w != b.w);
}

}  // namespace probe

using probe::u64;

extern "C" __global__ void fill(uint4* to, u64 vectors, unsigned seed) {
  for (u64 i = blockIdx.x * u64{blockDim.x} + threadIdx.x; i < vectors; i += u64{gridDim.x} * blockDim.x)
    to[i] = probe::pattern(i, seed);
}

extern "C" __global__ void count_wrong(const uint4* from, u64 vectors, unsigned seed, unsigned* wrong) {
  unsigned found = 0;
  for (u64 i = blockIdx.x * u64{blockDim.x} + threadIdx.x; i < vectors; i += u64{gridDim.x} * blockDim.x)
    found += probe::differing(from[i], probe::pattern(i, seed));
  if (found != 0) atomicAdd(wrong, found);
}

/// Bulk stores of one chunk of shared memory, over and over. `from` and `stopped` are not used.
extern "C" __global__ void push_bulk_constant(char* to, const char* from, u64 bytes, unsigned chunk,
                                              unsigned* stopped) {
  uint4* shared = kiln::dynamic_shared<uint4>();
  for (unsigned i = threadIdx.x; i < chunk / 16; i += blockDim.x) shared[i] = probe::pattern(i, 1);
  probe::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (u64 i = blockIdx.x; i < bytes / chunk; i += gridDim.x) {
    probe::bulk_store(to + i * chunk, probe::shared_address(shared), chunk);
    probe::wait_until_read<15>();
  }
  probe::wait_until_stored();
}

/// Bulk loads of chunks into Stages places of shared memory in turn, and bulk stores from them. Loads run half the places ahead.
template <int Stages>
__device__ __forceinline__ void push_bulk_copy(char* to, const char* from, u64 bytes, unsigned chunk,
                                               unsigned* stopped) {
  constexpr int lead = Stages / 2;
  if (threadIdx.x != 0) return;
  const unsigned places = probe::shared_address(kiln::dynamic_shared()), barriers = places + Stages * chunk;
  for (int stage = 0; stage < Stages; ++stage) kiln::mbarrier_init(barriers + stage * 8, 1);
  kiln::fence_mbarrier_init();
  const u64 chunks = bytes / chunk, step = u64{gridDim.x} * chunk, begin = u64{blockIdx.x} * chunk;
  const u64 own = chunks > blockIdx.x ? (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  for (u64 i = 0; i < own + lead; ++i) {
    if (i < own) {
      const unsigned stage = static_cast<unsigned>(i % Stages);
      probe::wait_until_read<Stages - lead - 1>();  // the store that last read this place
      kiln::mbarrier_arrive_expect_tx(barriers + stage * 8, chunk);
      kiln::bulk_load(places + stage * chunk, from + begin + i * step, chunk, barriers + stage * 8);
    }
    if (i >= lead) {
      const u64 at = i - lead;
      const unsigned stage = static_cast<unsigned>(at % Stages);
      if (!probe::mbarrier_wait_bounded(barriers + stage * 8, static_cast<unsigned>(at / Stages) & 1)) {
        *stopped = 1;
        break;
      }
      probe::bulk_store(to + begin + at * step, places + stage * chunk, chunk);
    }
  }
  probe::wait_until_stored();
}
#define PROBE_PUSH_BULK_COPY(stages)                                                                        \
  extern "C" __global__ void push_bulk_copy_##stages(char* to, const char* from, u64 bytes, unsigned chunk, \
                                                     unsigned* stopped) {                                   \
    push_bulk_copy<stages>(to, from, bytes, chunk, stopped);                                                \
  }
PROBE_PUSH_BULK_COPY(2)
PROBE_PUSH_BULK_COPY(4)
PROBE_PUSH_BULK_COPY(6)
PROBE_PUSH_BULK_COPY(12)
PROBE_PUSH_BULK_COPY(16)
PROBE_PUSH_BULK_COPY(24)
PROBE_PUSH_BULK_COPY(32)

extern "C" __global__ void __launch_bounds__(1024)
    push_vector_constant(uint4* to, const uint4* from, u64 bytes, unsigned chunk, unsigned* stopped) {
  const uint4 value = probe::pattern(threadIdx.x, 1);
  for (u64 i = blockIdx.x * u64{blockDim.x} + threadIdx.x; i < bytes / 16; i += u64{gridDim.x} * blockDim.x)
    to[i] = value;
}

extern "C" __global__ void __launch_bounds__(1024)
    push_vector_copy(uint4* to, const uint4* from, u64 bytes, unsigned chunk, unsigned* stopped) {
  const u64 vectors = bytes / 16, step = u64{gridDim.x} * blockDim.x;
  u64 i = blockIdx.x * u64{blockDim.x} + threadIdx.x;
  for (; i + 3 * step < vectors; i += 4 * step) {
    uint4 held[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) held[j] = from[i + j * step];
#pragma unroll
    for (int j = 0; j < 4; ++j) to[i + j * step] = held[j];
  }
  for (; i < vectors; i += step) to[i] = from[i];
}

/// Writes to all of `to` again and again for `duration_ns`, and counts how often in `passes`.
extern "C" __global__ void write_for(uint4* to, u64 vectors, u64 duration_ns, unsigned* passes) {
  const u64 begin = probe::now_ns();
  unsigned pass = 0;
  for (; probe::now_ns() - begin < duration_ns; ++pass)
    for (u64 i = blockIdx.x * u64{blockDim.x} + threadIdx.x; i < vectors; i += u64{gridDim.x} * blockDim.x)
      to[i] = probe::pattern(i, pass);
  if (blockIdx.x == 0 && threadIdx.x == 0) *passes = pass;
}

struct round_trip {
  u64 ns;
  unsigned rounds;
  unsigned wrong;
  unsigned stopped;
};

struct ends {
  unsigned* own_flag;
  unsigned* peers_flag;
  char* own_data;
  char* peers_data;
};

/// Rank 0 sends Bytes of data, then a flag; rank 1 answers with a flag. Where Checked, all threads write each round's data, and rank 1
/// loads it by a bulk copy and compares it: the time then holds that work too. One block of 128 threads.
template <unsigned Bytes, bool Checked>
__device__ __forceinline__ void exchange(unsigned rank, ends at, unsigned warm, unsigned rounds, round_trip* result) {
  __shared__ __align__(128) unsigned words[Bytes == 0 ? 4 : Bytes / 4];
  __shared__ __align__(8) u64 barrier_storage;
  __shared__ int stop;
  constexpr int count = Bytes / 4;
  const int first = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x);
  const bool leads = first == 0;
  const unsigned barrier = probe::shared_address(&barrier_storage);
  if (leads) {
    kiln::mbarrier_init(barrier, 1);
    kiln::fence_mbarrier_init();
    stop = 0;
  }
  for (int i = first; i < count; i += step) words[i] = i;
  probe::fence_proxy_async();
  __syncthreads();
  u64 begin = probe::now_ns();
  unsigned round = 1;
  for (; round <= warm + rounds; ++round) {
    if (round == warm + 1) begin = probe::now_ns();
    if (Checked && rank == 0) {
      for (int i = first; i < count; i += step) words[i] = round * 65536 + i;
      probe::fence_proxy_async();
      __syncthreads();
    }
    if (leads) {
      bool arrived = true;
      if (rank == 0) {
        if (Bytes != 0) {
          probe::bulk_store(at.peers_data, probe::shared_address(words), Bytes);
          probe::wait_until_stored();
        }
        probe::store_release(at.peers_flag, round);
      }
      arrived = probe::wait_for_flag(at.own_flag, round);
      if (Checked && rank == 1 && arrived) {
        probe::fence_proxy_async();
        kiln::mbarrier_arrive_expect_tx(barrier, Bytes);
        kiln::bulk_load(probe::shared_address(words), at.own_data, Bytes, barrier);
        arrived = probe::mbarrier_wait_bounded(barrier, (round - 1) & 1);
      }
      if (!arrived) stop = 1;
    }
    if (Checked) __syncthreads();
    if (Checked && rank == 1 && stop == 0) {
      unsigned wrong = 0;
      for (int i = first; i < count; i += step) wrong += words[i] != round * 65536 + i;
      if (wrong != 0) atomicAdd(&result->wrong, wrong);
      __syncthreads();
    }
    if (leads && rank == 1 && stop == 0) probe::store_release(at.peers_flag, round);
    if ((Checked || leads) && stop != 0) break;
    if (!Checked && !leads) break;
  }
  if (!leads) return;
  result->ns = probe::now_ns() - begin;
  result->rounds = round <= warm ? 0 : round - warm - 1;
  result->stopped = stop;
}

extern "C" __global__ void exchange_flag(unsigned rank, ends at, unsigned warm, unsigned rounds, round_trip* result) {
  exchange<0, false>(rank, at, warm, rounds, result);
}
extern "C" __global__ void exchange_2k(unsigned rank, ends at, unsigned warm, unsigned rounds, round_trip* result) {
  exchange<2048, false>(rank, at, warm, rounds, result);
}
extern "C" __global__ void exchange_16k(unsigned rank, ends at, unsigned warm, unsigned rounds, round_trip* result) {
  exchange<16384, false>(rank, at, warm, rounds, result);
}
extern "C" __global__ void exchange_16k_checked(unsigned rank, ends at, unsigned warm, unsigned rounds,
                                                round_trip* result) {
  exchange<16384, true>(rank, at, warm, rounds, result);
}
