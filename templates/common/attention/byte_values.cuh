// Values of 8 bits, transposed for wgmma, which takes such operands along k alone.
//
// ldmatrix transposes pairs of neighbouring bytes. What it leaves of single bytes are two orders, and neither costs an
// instruction. In each 16 keys, those that a lane of a quad has of a product's sums become neighbours. It needs them so
// for its part of a. They are 2 * lane and the next, and the two that are 8 keys further on. In each 16 columns the
// even ones come first, then the odd ones, so that a lane has four neighbours of a result.
#pragma once

#include "common/attention/swizzled_tile.cuh"
#include "common/mma.cuh"
#include "common/stmatrix.cuh"

namespace kiln::attention {

/// Two registers of a column of keys to the words of its even and its odd bytes.
__device__ __forceinline__ void part_bytes(unsigned (&to)[4], const unsigned (&from)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    to[2 * half] = __byte_perm(from[2 * half], from[2 * half + 1], 0x6420);
    to[2 * half + 1] = __byte_perm(from[2 * half], from[2 * half + 1], 0x7531);
  }
}

/// Zeros for the keys from `count` on, of 32 as ldmatrix leaves them.
__device__ __forceinline__ void clear_keys_from(int count, unsigned (&keys)[4]) {
  const int own = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int here = count - own - 8 * i;
    keys[i] &= (here > 0 ? 0xffffu : 0u) | (here > 1 ? 0xffff0000u : 0u);
  }
}

/// Transposes `keys` rows of `columns` values at `from`, as From lays them down, to a To at `to`. `warp` of `warps` has every so many columns.
/// `cuts`: keys from `count` on become zeros, whatever they hold.
template <typename From, typename To, int keys, int columns, int warps, bool cuts>
__device__ __forceinline__ void transpose_values(unsigned from, unsigned to, int warp, int count) {
  static_assert(keys % 32 == 0 && columns % 16 == 0 && To::swizzle == 128);
  constexpr unsigned wide = From::swizzle, groups = keys / 32, together = 2;  // loads under way at once, by registers
  const unsigned lane = threadIdx.x % 32, turned = (lane * wide >> 7 & (wide / 16 - 1)) * 16;  // by the swizzle
  const unsigned own = to + lane % 16 * 128 + (lane / 16 * 16 ^ lane % 8 * 16);
#pragma unroll 1
  for (unsigned part = warp; part < columns / 16; part += warps) {
    const unsigned read = from + part * 16 / wide * From::box_bytes + lane * wide + (part * 16 % wide ^ turned);
#pragma unroll(cuts ? 1 : groups)
    for (unsigned first = 0; first < groups; first += together) {
      unsigned pairs[together][4], bytes[4];
#pragma unroll
      for (unsigned i = 0; i < together && first + i < groups; ++i)
        ldmatrix_x4_trans(pairs[i], read + (first + i) * 32 * wide);
#pragma unroll
      for (unsigned i = 0; i < together && first + i < groups; ++i) {
        const unsigned group = first + i;
        if constexpr (cuts) clear_keys_from(count - static_cast<int>(group) * 32, pairs[i]);
        part_bytes(bytes, pairs[i]);
        stmatrix_x4((own + part * 2048 ^ group % 4 * 32) + group / 4 * To::box_bytes, bytes);
      }
    }
  }
}

/// The weights of 32 neighbouring keys, from 32 * step on, in the order of transposed ones.
template <int count>
__device__ __forceinline__ void pack_byte_weights(unsigned (&a)[4], const float (&weights)[count], int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = 16 * step + i / 2 * 8 + i % 2 * 2;
    a[i] = cvt_rn_e4m3x4(weights[at], weights[at + 1], weights[at + 4], weights[at + 5]);
  }
}

/// Rounds one of the thread's two rows (`row`) of sums over transposed values and stores it at `to`, a multiple of 8 bytes, if `exists`.
template <typename T, int count>
__device__ __forceinline__ void store_row_by_fours(T* to, const float (&sums)[count], int row, float factor,
                                                   bool exists) {
  if (!exists) return;
  T* const own = to + threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < count / 8; ++i) {
    const float *even = sums + 8 * i + 2 * row, *odd = even + 4;
    *reinterpret_cast<uint2*>(own + 16 * i) =
        make_uint2(cvt_rn_x2<T>(even[0] * factor, odd[0] * factor), cvt_rn_x2<T>(even[1] * factor, odd[1] * factor));
  }
}

}  // namespace kiln::attention
