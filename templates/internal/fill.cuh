// Test inputs made on the device.
//
//   fill_values<T>(T* out, long long count, unsigned long long seed, int kind, double scale)
//       kind is the order of manifest::Fill: 0 normal, 1 uniform in [-1, 1), 2 ones, 3 zeros, 4 index, 5 offsets. Floats are
//       multiplied by scale and saturate; element i depends on seed and i only. Integers: normal and uniform give whole
//       numbers in [-8, 8) (unsigned: [0, 16)) and scale is not used. index counts 0, 1, 2, ... and starts again at the
//       largest count that the type holds exactly. offsets rise from 0 to scale in unequal steps, some of them empty where
//       there are many. Any grid and block: threads stride over the elements.
//
//   refill_values<T>(..., cycles)
//       the same, late: it waits so many clock cycles before its first write, having let its successor begin, and ends after its
//       predecessor. Launched with the right to begin early and few blocks, one after another, they are all still to write when what
//       follows them begins: a kernel that does not wait for its inputs reads what was there before.
//
// Poison needs no kernel: bytes of 0xff are a NaN in every floating type.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/types.cuh"

namespace kiln {

namespace detail {

/// SplitMix64's finaliser over a Weyl sequence: every element an independent 64 bits.
__device__ __forceinline__ unsigned long long hash(unsigned long long seed, unsigned long long index) {
  unsigned long long z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Box-Muller; the first uniform lies in (0, 1], so the logarithm is finite.
__device__ __forceinline__ float normal(unsigned long long bits) {
  const float radius_uniform = (static_cast<float>(static_cast<unsigned>(bits >> 40)) + 1.0f) * 0x1p-24f;
  const float angle_uniform = static_cast<float>(static_cast<unsigned>(bits & 0xffffff)) * 0x1p-24f;
  return sqrtf(-2.0f * logf(radius_uniform)) * cospif(2.0f * angle_uniform);
}

__device__ __forceinline__ float uniform(unsigned long long bits) {
  return static_cast<float>(static_cast<unsigned>(bits >> 40)) * 0x1p-23f - 1.0f;
}

/// How many whole numbers from 0 up a type holds exactly; 0 for no limit that matters.
template <typename T>
inline constexpr long long exact_count = 0;
template <>
inline constexpr long long exact_count<bf16> = 256;
template <>
inline constexpr long long exact_count<f16> = 2048;
template <>
inline constexpr long long exact_count<float> = 1 << 24;
template <>
inline constexpr long long exact_count<e4m3> = 16;
template <>
inline constexpr long long exact_count<e5m2> = 8;
template <>
inline constexpr long long exact_count<signed char> = 128;
template <>
inline constexpr long long exact_count<unsigned char> = 256;

/// Element `index` of `count` that cut 0 .. last into parts of up to twice their average.
template <typename T>
__device__ __forceinline__ T offset(unsigned long long bits, long long index, long long count, double last) {
  if (index == 0) return T(0);
  if (index == count - 1) return static_cast<T>(last);
  const double at = static_cast<double>(index) + 0.5 * static_cast<double>(uniform(bits));
  return static_cast<T>(last * at / static_cast<double>(count - 1));
}

template <typename T>
__device__ __forceinline__ T filling(unsigned long long bits, long long index, long long count, int kind,
                                     double scale) {
  if constexpr (!is_float<T>) {
    if (kind == 5) return offset<T>(bits, index, count, scale);
  }
  if constexpr (exact_count<T> != 0) index %= exact_count<T>;
  if constexpr (is_float<T>) {
    const float value = kind == 0 ? normal(bits) : kind == 1 ? uniform(bits) : kind == 2 ? 1.0f : 0.0f;
    return from_double<T>((kind == 4 ? static_cast<double>(index) : static_cast<double>(value)) * scale);
  } else {
    const int small = static_cast<int>(bits >> 60) - (static_cast<T>(-1) < T(0) ? 8 : 0);
    return kind <= 1 ? static_cast<T>(small) : kind == 2 ? T(1) : kind == 3 ? T(0) : static_cast<T>(index);
  }
}

}  // namespace detail

template <typename T>
__global__ __launch_bounds__(1024) void fill_values(T* out, long long count, unsigned long long seed, int kind,
                                                    double scale) {
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) {
    out[i] = detail::filling<T>(detail::hash(seed, i), i, count, kind, scale);
  }
}

template <typename T>
__global__ __launch_bounds__(1024) void refill_values(T* out, long long count, unsigned long long seed, int kind,
                                                      double scale, long long cycles) {
  launch_dependents();
  for (const long long begin = clock64(); clock64() - begin < cycles;) {
  }
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads)
    out[i] = detail::filling<T>(detail::hash(seed, i), i, count, kind, scale);
  wait_for_predecessor();
}

}  // namespace kiln
