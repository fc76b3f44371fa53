// wgmma with a in registers, of every width that the instruction has: those that wgmma.cuh leaves out too.
#pragma once

#include "common/wgmma.cuh"

#define KILN_TEXT_24 KILN_TEXT_16 ", %8, %9, %10, %11"
#define KILN_TEXT_40 KILN_TEXT_32 ", %16, %17, %18, %19"
#define KILN_TEXT_56 KILN_TEXT_48 ", %24, %25, %26, %27"
#define KILN_TEXT_216 KILN_TEXT_208 ", %104, %105, %106, %107"
#define KILN_TEXT_232 KILN_TEXT_224 ", %112, %113, %114, %115"
#define KILN_TEXT_248 KILN_TEXT_240 ", %120, %121, %122, %123"
#define KILN_OPERANDS_24 KILN_OPERANDS_16, KILN_FOUR(8)
#define KILN_OPERANDS_40 KILN_OPERANDS_32, KILN_FOUR(16)
#define KILN_OPERANDS_56 KILN_OPERANDS_48, KILN_FOUR(24)
#define KILN_OPERANDS_216 KILN_OPERANDS_208, KILN_FOUR(104)
#define KILN_OPERANDS_232 KILN_OPERANDS_224, KILN_FOUR(112)
#define KILN_OPERANDS_248 KILN_OPERANDS_240, KILN_FOUR(120)

namespace kiln {

/// As wgmma with a in registers. n: the multiples of 8 up to 256.
template <typename T, int n, major b_major = major::k>
__device__ __forceinline__ void wgmma_of_width(float (&d)[n / 2], const unsigned (&a)[4],
                                               unsigned long long b_descriptor, bool accumulates) {
  static_assert(n % 8 == 0 && n >= 8 && n <= 256);
  if constexpr (n % 32 == 0 && n != 224) wgmma<T, n, b_major>(d, a, b_descriptor, accumulates);
  if constexpr (n == 8) KILN_WGMMA_A(8, 4, 5, 6, 7, 8, 9, 10, 11);
  if constexpr (n == 16) KILN_WGMMA_A(16, 8, 9, 10, 11, 12, 13, 14, 15);
  if constexpr (n == 24) KILN_WGMMA_A(24, 12, 13, 14, 15, 16, 17, 18, 19);
  if constexpr (n == 40) KILN_WGMMA_A(40, 20, 21, 22, 23, 24, 25, 26, 27);
  if constexpr (n == 48) KILN_WGMMA_A(48, 24, 25, 26, 27, 28, 29, 30, 31);
  if constexpr (n == 56) KILN_WGMMA_A(56, 28, 29, 30, 31, 32, 33, 34, 35);
  if constexpr (n == 72) KILN_WGMMA_A(72, 36, 37, 38, 39, 40, 41, 42, 43);
  if constexpr (n == 80) KILN_WGMMA_A(80, 40, 41, 42, 43, 44, 45, 46, 47);
  if constexpr (n == 88) KILN_WGMMA_A(88, 44, 45, 46, 47, 48, 49, 50, 51);
  if constexpr (n == 104) KILN_WGMMA_A(104, 52, 53, 54, 55, 56, 57, 58, 59);
  if constexpr (n == 112) KILN_WGMMA_A(112, 56, 57, 58, 59, 60, 61, 62, 63);
  if constexpr (n == 120) KILN_WGMMA_A(120, 60, 61, 62, 63, 64, 65, 66, 67);
  if constexpr (n == 136) KILN_WGMMA_A(136, 68, 69, 70, 71, 72, 73, 74, 75);
  if constexpr (n == 144) KILN_WGMMA_A(144, 72, 73, 74, 75, 76, 77, 78, 79);
  if constexpr (n == 152) KILN_WGMMA_A(152, 76, 77, 78, 79, 80, 81, 82, 83);
  if constexpr (n == 168) KILN_WGMMA_A(168, 84, 85, 86, 87, 88, 89, 90, 91);
  if constexpr (n == 176) KILN_WGMMA_A(176, 88, 89, 90, 91, 92, 93, 94, 95);
  if constexpr (n == 184) KILN_WGMMA_A(184, 92, 93, 94, 95, 96, 97, 98, 99);
  if constexpr (n == 200) KILN_WGMMA_A(200, 100, 101, 102, 103, 104, 105, 106, 107);
  if constexpr (n == 208) KILN_WGMMA_A(208, 104, 105, 106, 107, 108, 109, 110, 111);
  if constexpr (n == 216) KILN_WGMMA_A(216, 108, 109, 110, 111, 112, 113, 114, 115);
  if constexpr (n == 224) KILN_WGMMA_A(224, 112, 113, 114, 115, 116, 117, 118, 119);
  if constexpr (n == 232) KILN_WGMMA_A(232, 116, 117, 118, 119, 120, 121, 122, 123);
  if constexpr (n == 240) KILN_WGMMA_A(240, 120, 121, 122, 123, 124, 125, 126, 127);
  if constexpr (n == 248) KILN_WGMMA_A(248, 124, 125, 126, 127, 128, 129, 130, 131);
}

}  // namespace kiln
