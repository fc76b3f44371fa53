// Rounding to e4m3 under a scale: what is stored, times its scale, is the value (dequantised = q * scale).
#pragma once

#include "common/reduce.cuh"
#include "common/vector.cuh"

namespace kiln {

/// How an op's result is stored, in the order and the words of the manifests' choice.
enum class quantise_mode {
  none,
  tensor,  // one scale, given in device memory
  block    // a scale for each 128 neighbours of a row, computed here and written out
};

inline constexpr float e4m3_largest = 448.0f;
inline constexpr int quantise_block = 128;
/// A block whose largest magnitude is under this is scaled as if it were this, so that zeros divide by no zero.
inline constexpr float quantise_least = 1e-10f;

/// Two elements to nearest even, past +-448 to that; a NaN stays one. `first` is the lower in memory.
__device__ __forceinline__ unsigned short pack_e4m3(float first, float second) {
#if __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return static_cast<unsigned short>(from_float<e4m3>(first).bits | from_float<e4m3>(second).bits << 8);
#endif
}

/// Each element times `inverse`, the reciprocal of the scale, as one word.
template <int N>
__device__ __forceinline__ packed<e4m3, N> quantise_packed(const vec<float, N>& values, float inverse) {
  if constexpr (N == 1) {
    return pack(vec<e4m3, 1>{from_float<e4m3>(values.at[0] * inverse)});
  } else if constexpr (N == 2) {
    return pack_e4m3(values.at[0] * inverse, values.at[1] * inverse);
  } else {
    vec<unsigned, N / 4> fours;
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const float* four = &values.at[4 * i];
      asm("mov.b32 %0, {%1, %2};"
          : "=r"(fours.at[i])
          : "h"(pack_e4m3(four[0] * inverse, four[1] * inverse)), "h"(pack_e4m3(four[2] * inverse, four[3] * inverse)));
    }
    return __builtin_bit_cast(packed<e4m3, N>, fours);
  }
}
template <int N>
__device__ __forceinline__ vec<e4m3, N> quantise(const vec<float, N>& values, float inverse) {
  return unpack<e4m3, N>(quantise_packed(values, inverse));
}

/// The largest magnitude; 0 for nothing but NaN.
template <int N>
__device__ __forceinline__ float largest_magnitude(const vec<float, N>& values) {
  return values.template map<float>([](float value) { return fabsf(value); }).reduce(maximum{});
}

/// Within a unit in the last place.
__device__ __forceinline__ float reciprocal(float value) {
  float result;
  asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

/// A block's scale, and what its elements are multiplied by.
struct block_scale {
  float scale;    // largest magnitude / 448
  float inverse;  // within 2 units in the last place of 1 / scale
};

__device__ __forceinline__ block_scale scale_of(float largest) {
  const float scale = fmaxf(largest, quantise_least) * (1.0f / e4m3_largest);
  float inverse;  // never subnormal, which would be flushed; under an infinite scale, infinities still saturate
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(fminf(scale, 0x1p126f)));
  return {scale, inverse};
}

/// The scale of the block that N `values`, times `factor`, are neighbours of, the rest being in the 128 / N lanes beside, aligned. All
/// lanes of the warp must take part; elements past the row's end are 0.
template <int N>
__device__ __forceinline__ block_scale shared_scale(const vec<float, N>& values, float factor = 1.0f) {
  static_assert(N >= quantise_block / 32, "a block is shared by the lanes of one warp");
  return scale_of(warp_reduce<quantise_block / N>(largest_magnitude(values), maximum{}) * factor);
}

}  // namespace kiln
