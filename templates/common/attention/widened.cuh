// Elements of e4m3 as elements of 16 bits, which hold each of them exactly. NaN stays NaN.
#pragma once

#include "common/attention/row_tile.cuh"
#include "common/vector.cuh"

namespace kiln::attention {

/// Eight elements of 8 bits as T. There is no instruction that makes bf16 of them, so they become f16 and f32 on the way.
template <typename T>
__device__ __forceinline__ uint4 widened_to(uint2 bytes) {
  uint4 words = widened(bytes);
  if constexpr (is_same<T, bf16>) {
    const auto to_bf16 = [](unsigned pair) {
      const auto both = to_floats<f16, 2>(__builtin_bit_cast(packed<f16, 2>, pair));
      return cvt_rn_x2<bf16>(both.at[0], both.at[1]);
    };
    words = make_uint4(to_bf16(words.x), to_bf16(words.y), to_bf16(words.z), to_bf16(words.w));
  }
  return words;
}

}  // namespace kiln::attention
