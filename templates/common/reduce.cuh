// Reductions over lanes, warps and blocks: every thread gets the result.
#pragma once

namespace kiln {

inline constexpr unsigned full_warp = 0xffffffffu;

template <typename T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(full_warp, value, mask);
}

struct add {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct maximum {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }  // a NaN gives way
};

/// Over aligned groups of Lanes lanes; all 32 lanes of the warp must take part. Types that are not built in bring
/// their own shuffle_xor.
template <int Lanes = 32, typename T, typename Combine>
__device__ __forceinline__ T warp_reduce(T value, Combine combine) {
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}

/// Over the block's Warps warps, given what each warp has agreed on. One barrier: calls that follow each other must
/// alternate between two arrays `scratch` of Warps elements in shared memory.
template <int Warps, typename T, typename Combine>
__device__ __forceinline__ T block_reduce(T of_warp, T identity, Combine combine, T* scratch) {
  static_assert((Warps & (Warps - 1)) == 0 && Warps <= 32);
  if constexpr (Warps == 1) return of_warp;
  const int lane = threadIdx.x % 32;
  if (lane == 0) scratch[threadIdx.x / 32] = of_warp;
  __syncthreads();
  const T mine = lane < Warps ? scratch[lane] : identity;
  return warp_reduce(mine, combine);
}

}  // namespace kiln
