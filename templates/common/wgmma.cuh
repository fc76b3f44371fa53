// Asynchronous products of a warpgroup: d += a * b. Here a is 64 x k and b is k x n in shared memory, and d is in f32
// registers (sm_90a).
//
// A warpgroup is four neighbouring warps, the first a multiple of 4. All of them call each function together. k is 32
// bytes: 16 elements of 16 bits, or 32 of 8. Thread t of the warpgroup holds of d, for j from 0 to n / 8 - 1,
//   d[4 * j], d[4 * j + 1]      row 16 * (t / 32) + t % 32 / 4,  columns 8 * j + 2 * (t % 4) and the next
//   d[4 * j + 2], d[4 * j + 3]  the same columns, 8 rows further down.
//
// The order of calls: wgmma_fence; wgmma as often as needed; wgmma_commit_group; wgmma_wait_group, with hold around it.
// Only then may d be used, and what was read of shared memory be written again.
#pragma once

#include "common/types.cuh"

namespace kiln {

/// Before the first wgmma, and after other instructions wrote its d. (Writes to shared memory take fence_proxy_async.)
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// The products since the last commit become one group.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most `pending` of the latest groups are under way.
template <int pending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// Keeps the compiler from moving what it does with `d` across; no instruction. It does not know that products still
/// write d.
template <int count>
__device__ __forceinline__ void hold(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// Which dimension of an operand runs along memory: k, or the other one (m of a, n of b). 8-bit types take k only.
enum class major { k, mn };

/// An operand in shared memory under the 128-byte swizzle, as TMA writes it. Rows of 128 bytes lie in atoms of 8 rows,
/// 1024 bytes, at multiples of 1024. Steps within a tile add to `address`. `swizzle`: 64 or 32 instead of 128, of
/// elements and bytes alike.
///   major::k   A row holds one m (or n): 128 bytes along k. Atoms follow each other along m at `stride` bytes. A step of
///              k adds 32 bytes.
///   major::mn  A row holds one k: 64 elements along m. Atoms follow each other along k at `stride` bytes, so that a step
///              of k (two atoms) adds 2 * stride; the next 64 elements along m lie `leading` bytes on, which major::k has
///              no use for.
/// In a cluster, bits of `address` past those of shared memory tell the block's rank. The descriptor has no place for
/// them.
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address, unsigned stride, unsigned leading = 16,
                                                               int swizzle = 128) {
  const unsigned long long mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
  return mode << 62 | static_cast<unsigned long long>(stride >> 4) << 32 |
         static_cast<unsigned long long>(leading >> 4) << 16 | (address & 0x3ffff) >> 4;
}

/// The descriptor of what lies `bytes` further on in the same shared memory. Only the low word changes, and by a
/// constant if `bytes` is.
__device__ __forceinline__ unsigned long long wgmma_descriptor_at(unsigned long long from, unsigned bytes) {
  const unsigned high = static_cast<unsigned>(from >> 32), low = static_cast<unsigned>(from) + (bytes >> 4);
  return static_cast<unsigned long long>(high) << 32 | low;
}

namespace detail {

/// The end of the instruction's name, from k on.
template <typename A, typename B>
struct wgmma_types;
template <>
struct wgmma_types<bf16, bf16> {
  static constexpr char text[] = "k16.f32.bf16.bf16";
};
template <>
struct wgmma_types<f16, f16> {
  static constexpr char text[] = "k16.f32.f16.f16";
};
template <>
struct wgmma_types<e4m3, e4m3> {
  static constexpr char text[] = "k32.f32.e4m3.e4m3";
};
template <>
struct wgmma_types<e4m3, e5m2> {
  static constexpr char text[] = "k32.f32.e4m3.e5m2";
};
template <>
struct wgmma_types<e5m2, e4m3> {
  static constexpr char text[] = "k32.f32.e5m2.e4m3";
};
template <>
struct wgmma_types<e5m2, e5m2> {
  static constexpr char text[] = "k32.f32.e5m2.e5m2";
};

/// The operands after scale-d: a and b are not negated; those of 16 bits say which way they lie.
template <bool wide, major a, major b>
struct wgmma_modifiers {
  static constexpr char text[] = {',', '1', ',', '1', ',', '0' + (a == major::mn), ',', '0' + (b == major::mn), 0};
};
template <major a, major b>
struct wgmma_modifiers<false, a, b> {
  static_assert(a == major::k && b == major::k, "8-bit operands of wgmma run along k");
  static constexpr char text[] = ",1,1";
};

}  // namespace detail

// The registers of d for each n, as they stand in the instruction, and as operands.
#define KILN_TEXT_8 "%0, %1, %2, %3"
#define KILN_TEXT_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define KILN_TEXT_32 KILN_TEXT_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KILN_TEXT_48 KILN_TEXT_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define KILN_TEXT_64 KILN_TEXT_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define KILN_TEXT_72 KILN_TEXT_64 ", %32, %33, %34, %35"
#define KILN_TEXT_80 KILN_TEXT_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define KILN_TEXT_88 KILN_TEXT_80 ", %40, %41, %42, %43"
#define KILN_TEXT_96 KILN_TEXT_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define KILN_TEXT_104 KILN_TEXT_96 ", %48, %49, %50, %51"
#define KILN_TEXT_112 KILN_TEXT_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define KILN_TEXT_120 KILN_TEXT_112 ", %56, %57, %58, %59"
#define KILN_TEXT_128 KILN_TEXT_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define KILN_TEXT_136 KILN_TEXT_128 ", %64, %65, %66, %67"
#define KILN_TEXT_144 KILN_TEXT_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define KILN_TEXT_152 KILN_TEXT_144 ", %72, %73, %74, %75"
#define KILN_TEXT_160 KILN_TEXT_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define KILN_TEXT_168 KILN_TEXT_160 ", %80, %81, %82, %83"
#define KILN_TEXT_176 KILN_TEXT_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define KILN_TEXT_184 KILN_TEXT_176 ", %88, %89, %90, %91"
#define KILN_TEXT_192 KILN_TEXT_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define KILN_TEXT_200 KILN_TEXT_192 ", %96, %97, %98, %99"
#define KILN_TEXT_208 KILN_TEXT_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define KILN_TEXT_224 KILN_TEXT_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define KILN_TEXT_240 KILN_TEXT_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define KILN_TEXT_256 KILN_TEXT_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define KILN_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KILN_EIGHT(i) KILN_FOUR(i), KILN_FOUR(i + 4)
#define KILN_OPERANDS_8 KILN_FOUR(0)
#define KILN_OPERANDS_16 KILN_EIGHT(0)
#define KILN_OPERANDS_32 KILN_OPERANDS_16, KILN_EIGHT(8)
#define KILN_OPERANDS_48 KILN_OPERANDS_32, KILN_EIGHT(16)
#define KILN_OPERANDS_64 KILN_OPERANDS_48, KILN_EIGHT(24)
#define KILN_OPERANDS_72 KILN_OPERANDS_64, KILN_FOUR(32)
#define KILN_OPERANDS_80 KILN_OPERANDS_64, KILN_EIGHT(32)
#define KILN_OPERANDS_88 KILN_OPERANDS_80, KILN_FOUR(40)
#define KILN_OPERANDS_96 KILN_OPERANDS_80, KILN_EIGHT(40)
#define KILN_OPERANDS_104 KILN_OPERANDS_96, KILN_FOUR(48)
#define KILN_OPERANDS_112 KILN_OPERANDS_96, KILN_EIGHT(48)
#define KILN_OPERANDS_120 KILN_OPERANDS_112, KILN_FOUR(56)
#define KILN_OPERANDS_128 KILN_OPERANDS_112, KILN_EIGHT(56)
#define KILN_OPERANDS_136 KILN_OPERANDS_128, KILN_FOUR(64)
#define KILN_OPERANDS_144 KILN_OPERANDS_128, KILN_EIGHT(64)
#define KILN_OPERANDS_152 KILN_OPERANDS_144, KILN_FOUR(72)
#define KILN_OPERANDS_160 KILN_OPERANDS_144, KILN_EIGHT(72)
#define KILN_OPERANDS_168 KILN_OPERANDS_160, KILN_FOUR(80)
#define KILN_OPERANDS_176 KILN_OPERANDS_160, KILN_EIGHT(80)
#define KILN_OPERANDS_184 KILN_OPERANDS_176, KILN_FOUR(88)
#define KILN_OPERANDS_192 KILN_OPERANDS_176, KILN_EIGHT(88)
#define KILN_OPERANDS_200 KILN_OPERANDS_192, KILN_FOUR(96)
#define KILN_OPERANDS_208 KILN_OPERANDS_192, KILN_EIGHT(96)
#define KILN_OPERANDS_224 KILN_OPERANDS_208, KILN_EIGHT(104)
#define KILN_OPERANDS_240 KILN_OPERANDS_224, KILN_EIGHT(112)
#define KILN_OPERANDS_256 KILN_OPERANDS_240, KILN_EIGHT(120)

// The numbers are those of the operands that follow d's n / 2.
#define KILN_WGMMA(n, a, b, accumulate, types, modifiers)                                                              \
  asm volatile(                                                                                                        \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate                                                                 \
      ", 0;\n"                                                                                                         \
      "wgmma.mma_async.sync.aligned.m64n" #n "%" #types " {" KILN_TEXT_##n "}, %" #a ", %" #b ", p%" #modifiers ";\n}" \
      : KILN_OPERANDS_##n                                                                                              \
      : "l"(a_descriptor), "l"(b_descriptor), "r"(static_cast<int>(accumulates)),                                      \
        "C"(detail::wgmma_types<A, B>::text), "C"(detail::wgmma_modifiers<sizeof(A) == 2, a_major, b_major>::text))

/// wgmma.mma_async: d = a * b, or d += a * b if `accumulates`. Widths n are 8, 16, 32, 48, the multiples of 8 from 64
/// to 208, and those of 16 from there to 256. A and B are both bf16, both f16, or any of e4m3 and e5m2.
template <typename A, typename B, int n, major a_major = major::k, major b_major = major::k>
__device__ __forceinline__ void wgmma(float (&d)[n / 2], unsigned long long a_descriptor,
                                      unsigned long long b_descriptor, bool accumulates) {
  static_assert(n == 8 || (n % 16 == 0 && n >= 16 && n <= 256) || (n % 8 == 0 && n > 64 && n < 208));
  if constexpr (n == 8) KILN_WGMMA(8, 4, 5, 6, 7, 8);
  if constexpr (n == 16) KILN_WGMMA(16, 8, 9, 10, 11, 12);
  if constexpr (n == 32) KILN_WGMMA(32, 16, 17, 18, 19, 20);
  if constexpr (n == 48) KILN_WGMMA(48, 24, 25, 26, 27, 28);
  if constexpr (n == 64) KILN_WGMMA(64, 32, 33, 34, 35, 36);
  if constexpr (n == 72) KILN_WGMMA(72, 36, 37, 38, 39, 40);
  if constexpr (n == 80) KILN_WGMMA(80, 40, 41, 42, 43, 44);
  if constexpr (n == 88) KILN_WGMMA(88, 44, 45, 46, 47, 48);
  if constexpr (n == 96) KILN_WGMMA(96, 48, 49, 50, 51, 52);
  if constexpr (n == 104) KILN_WGMMA(104, 52, 53, 54, 55, 56);
  if constexpr (n == 112) KILN_WGMMA(112, 56, 57, 58, 59, 60);
  if constexpr (n == 120) KILN_WGMMA(120, 60, 61, 62, 63, 64);
  if constexpr (n == 128) KILN_WGMMA(128, 64, 65, 66, 67, 68);
  if constexpr (n == 136) KILN_WGMMA(136, 68, 69, 70, 71, 72);
  if constexpr (n == 144) KILN_WGMMA(144, 72, 73, 74, 75, 76);
  if constexpr (n == 152) KILN_WGMMA(152, 76, 77, 78, 79, 80);
  if constexpr (n == 160) KILN_WGMMA(160, 80, 81, 82, 83, 84);
  if constexpr (n == 168) KILN_WGMMA(168, 84, 85, 86, 87, 88);
  if constexpr (n == 176) KILN_WGMMA(176, 88, 89, 90, 91, 92);
  if constexpr (n == 184) KILN_WGMMA(184, 92, 93, 94, 95, 96);
  if constexpr (n == 192) KILN_WGMMA(192, 96, 97, 98, 99, 100);
  if constexpr (n == 200) KILN_WGMMA(200, 100, 101, 102, 103, 104);
  if constexpr (n == 208) KILN_WGMMA(208, 104, 105, 106, 107, 108);
  if constexpr (n == 224) KILN_WGMMA(224, 112, 113, 114, 115, 116);
  if constexpr (n == 240) KILN_WGMMA(240, 120, 121, 122, 123, 124);
  if constexpr (n == 256) KILN_WGMMA(256, 128, 129, 130, 131, 132);
}

// As KILN_WGMMA; a0 to a3 are the operands that follow d's.
#define KILN_WGMMA_A(n, a0, a1, a2, a3, b, accumulate, types, modifiers)                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate                                                     \
               ", 0;\n"                                                                                             \
               "wgmma.mma_async.sync.aligned.m64n" #n "%" #types " {" KILN_TEXT_##n                                 \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p%" #modifiers ";\n}"                         \
               : KILN_OPERANDS_##n                                                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor), "r"(static_cast<int>(accumulates)), \
                 "C"(detail::wgmma_types<T, T>::text),                                                              \
                 "C"(detail::wgmma_modifiers_of_b<sizeof(T) == 2, b_major>::text))

namespace detail {
template <bool wide, major b>
struct wgmma_modifiers_of_b {
  static constexpr char text[] = {',', '1', ',', '1', ',', '0' + (b == major::mn), 0};
};
template <major b>
struct wgmma_modifiers_of_b<false, b> : wgmma_modifiers<false, major::k, b> {};
}  // namespace detail

/// Multiplies with a in registers: each of the warpgroup's warps has 16 rows. In thread t, a[0] holds columns
/// 2 * (t % 4) and the next of row t % 32 / 4. The row 8 further down is in a[1], and the columns 8 further on are in
/// a[2] and a[3]. With 8 bits a register holds four columns, from 4 * (t % 4) on, and a[2] and a[3] those 16 further
/// on. They must stay as they are until the product is waited for. T is bf16, f16, e4m3 or e5m2; n: the multiples of 32
/// to 256 but 224.
template <typename T, int n, major b_major = major::k>
__device__ __forceinline__ void wgmma(float (&d)[n / 2], const unsigned (&a)[4], unsigned long long b_descriptor,
                                      bool accumulates) {
  static_assert(n % 32 == 0 && n >= 32 && n <= 256 && n != 224);
  if constexpr (n == 32) KILN_WGMMA_A(32, 16, 17, 18, 19, 20, 21, 22, 23);
  if constexpr (n == 64) KILN_WGMMA_A(64, 32, 33, 34, 35, 36, 37, 38, 39);
  if constexpr (n == 96) KILN_WGMMA_A(96, 48, 49, 50, 51, 52, 53, 54, 55);
  if constexpr (n == 128) KILN_WGMMA_A(128, 64, 65, 66, 67, 68, 69, 70, 71);
  if constexpr (n == 160) KILN_WGMMA_A(160, 80, 81, 82, 83, 84, 85, 86, 87);
  if constexpr (n == 192) KILN_WGMMA_A(192, 96, 97, 98, 99, 100, 101, 102, 103);
  if constexpr (n == 256) KILN_WGMMA_A(256, 128, 129, 130, 131, 132, 133, 134, 135);
}

}  // namespace kiln
