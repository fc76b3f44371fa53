// Words of 16 bytes copied by a block, to its own memory and its peers'.
#pragma once

namespace kiln::team {

/// A word of NaN in every floating type, and of -1 in integers.
__device__ __forceinline__ uint4 poison() { return make_uint4(~0u, ~0u, ~0u, ~0u); }

/// Words 0 to `count` - 1, each read once and written to every target.
template <int Threads, int Targets>
__device__ __forceinline__ void copy_words(const uint4* from, uint4* const (&to)[Targets], int count) {
  constexpr int batch = 4;  // loads of a thread under way at once
  for (int first = static_cast<int>(threadIdx.x); first < count; first += Threads * batch) {
    uint4 words[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (first + i * Threads < count) words[i] = __ldcg(from + first + i * Threads);
    }
#pragma unroll
    for (int target = 0; target < Targets; ++target) {
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (first + i * Threads < count) to[target][first + i * Threads] = words[i];
      }
    }
  }
}

template <int Threads>
__device__ __forceinline__ void poison_words(uint4* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Threads) to[i] = poison();
}

}  // namespace kiln::team
