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

/// Words 0 to `counts[i]` - 1 of each part i, whose loads are under way together.
template <int Threads, int Parts>
__device__ __forceinline__ void copy_parts(const uint4* const (&from)[Parts], uint4* const (&to)[Parts],
                                           const int (&counts)[Parts]) {
  constexpr int batch = Parts <= 1 ? 4 : Parts <= 3 ? 2 : 1;  // loads of a thread from one part
  int most = counts[0];
#pragma unroll
  for (int part = 1; part < Parts; ++part) most = max(most, counts[part]);
  for (int first = static_cast<int>(threadIdx.x); first < most; first += Threads * batch) {
    uint4 words[Parts][batch];
#pragma unroll
    for (int part = 0; part < Parts; ++part) {
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (first + i * Threads < counts[part]) words[part][i] = __ldcg(from[part] + first + i * Threads);
      }
    }
#pragma unroll
    for (int part = 0; part < Parts; ++part) {
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (first + i * Threads < counts[part]) to[part][first + i * Threads] = words[part][i];
      }
    }
  }
}

template <int Threads>
__device__ __forceinline__ void poison_words(uint4* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Threads) to[i] = poison();
}

}  // namespace kiln::team
