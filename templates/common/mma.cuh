// Warp-wide matrix instructions of sm_80 and later. Fragments follow the PTX manual. In a 16 x 8 result, lane l holds
// row l / 4, columns 2 * (l % 4) and the next, in d[0] and d[1]. It holds the same columns of row l / 4 + 8 in d[2] and
// d[3].
#pragma once

#include "common/types.cuh"

namespace kiln {

/// ldmatrix.x4: four 8 x 8 matrices of 16-bit elements; lane l gives the shared address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&to)[4], unsigned from_shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from_shared)
               : "memory");
}

/// Loads as ldmatrix_x4, and transposes each matrix.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&to)[4], unsigned from_shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from_shared)
               : "memory");
}

/// mma.m16n8k16: d += a * b, with a 16 x 16 by rows, b 16 x 8 by columns, and d in f32. T is bf16 or f16.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  static_assert(is_same<T, bf16> || is_same<T, f16>, "mma_m16n8k16 multiplies bf16 or f16");
  if constexpr (is_same<T, bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// cvt.rn.bf16x2.f32 or cvt.rn.f16x2.f32: two results of a product, rounded and packed, the first in the low half.
template <typename T>
__device__ __forceinline__ unsigned cvt_rn_x2(float low, float high) {
  unsigned pair;
  if constexpr (is_same<T, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    static_assert(is_same<T, f16>);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

/// cvt.rn.satfinite.e4m3x2.f32 (sm_89 and later), twice: four numbers, the first in the lowest byte.
__device__ __forceinline__ unsigned cvt_rn_e4m3x4(float a, float b, float c, float d) {
  unsigned word;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}

/// cvt.rn.f16x2.e4m3x2 or cvt.rn.f16x2.e5m2x2 (sm_89 and later): the two bytes of one half of a word, exactly. Hopper's
/// mma.sync of 8-bit floats is made of these, of products of f16, and of additions one by one.
template <typename T>
__device__ __forceinline__ unsigned cvt_rn_f16x2(unsigned word, int half) {
  static_assert(is_same<T, e4m3> || is_same<T, e5m2>);
  unsigned short low, high;
  asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(word));
  unsigned pair;
  if constexpr (is_same<T, e4m3>) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(half == 0 ? low : high));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"(half == 0 ? low : high));
  }
  return pair;
}

}  // namespace kiln
