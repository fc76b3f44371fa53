// Keys and values of 8 bits, as mma.sync takes them: ldmatrix loads them in pairs, and registers widen them to f16, for
// which there is an instruction. Queries of bf16 become f16 too, in a unit that fits their largest.
//
// A lane's word of a row of keys has four neighbouring columns, 4 * (lane % 4) and on, where a product of 16 columns
// takes two and the two that are 8 further on. The order of columns does not matter to a sum, so queries are read in
// the order that keys have. Where ldmatrix transposes values, a word has two columns of two keys. The even columns make
// one product and the odd ones another, so that a lane has four neighbours of a result.
#pragma once

#include "common/attention/row_tile.cuh"
#include "common/attention/softmax_rows.cuh"

namespace kiln::attention {

/// What weights of values are rounded to.
template <typename T, bool has_bytes>
struct WeightOf {
  using type = T;
};
template <typename T>
struct WeightOf<T, true> {
  using type = f16;
};

/// What a key head's elements of 8 bits are multiplied by.
template <bool has_bytes>
struct CacheUnits {
  float of_keys, values;

  __device__ __forceinline__ CacheUnits(HeadScales k_scale, HeadScales v_scale, int key_head)
      : of_keys(has_bytes ? k_scale[key_head] : 1.0f), values(has_bytes ? v_scale[key_head] : 1.0f) {}

  __device__ __forceinline__ float of_logits(float scale, float of_queries) const {
    return has_bytes ? logit_scale(scale, of_queries, of_keys) : scale;
  }
  __device__ __forceinline__ float of_values() const { return values; }
};

/// cp.async.ca.shared.global of 8 bytes; reads nothing and writes zeros when `read` is false. Both sides 8-byte aligned.
__device__ __forceinline__ void cp_async_8(unsigned to_shared, const void* from_global, bool read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to_shared), "l"(from_global), "r"(read ? 8 : 0)
               : "memory");
}

/// copy_rows() of rows whose bytes are a multiple of 8 alone.
template <typename Tile, int dim, int threads, typename T, typename Places>
__device__ __forceinline__ void copy_rows_by_eights(unsigned tile, int row, const T* from, long long stride,
                                                    const Places& places, int begin, int end, int thread) {
  constexpr int pieces = Tile::k_steps * 4, each = 8 / sizeof(T);
#pragma unroll 4
  for (int i = thread; i < 16 * pieces; i += threads) {
    const int own = i / pieces, piece = i % pieces;
    const bool read = own >= begin && own < end && piece * each < dim;
    const int place = places.of(own);
    cp_async_8(tile + Tile::offset(row + own, piece / 2) + piece % 2 * 8,
               read ? from + place * stride + piece * each : from, read);
  }
}

/// Turns queries in shared memory to f16, and returns the unit that they then have: a power of two, with the largest from
/// 1 on and below 2. What is under 2^-24 of the largest is rounded to a multiple of that. All threads of the block call it, once
/// the queries are there. `scratch`: a word a warp in shared memory.
template <typename T, typename Query, int rows, int threads>
__device__ __forceinline__ float queries_to_f16(char* tile, unsigned* scratch) {
  if constexpr (is_same<T, f16>) {
    return 1.0f;
  } else {
    static_assert(is_same<T, bf16>);
    constexpr int chunks = Query::k_steps * 2, all = rows * chunks, warps = threads / 32;
    const auto larger = [](unsigned a, unsigned b) { return max(a, b); };
    const int thread = static_cast<int>(threadIdx.x);
    const auto words_at = [&](int i) {
      return reinterpret_cast<unsigned*>(tile + Query::offset(i / chunks, i % chunks));
    };
    unsigned largest = 0;  // the bits of a magnitude
    for (int i = thread; i < all; i += threads)
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const unsigned pair = words_at(i)[word];
        largest = larger(largest, larger(pair & 0x7fffu, pair >> 16 & 0x7fffu));
      }
    largest = warp_reduce(largest, larger);
    if (thread % 32 == 0) scratch[thread / 32] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < warps; ++i) largest = larger(largest, scratch[i]);
    const unsigned biased = largest >> 7, exponent = biased == 0 || biased == 255 ? 127 : min(biased, 253u);
    const float factor = __uint_as_float((254 - exponent) << 23);
    for (int i = thread; i < all; i += threads)
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        unsigned& pair = words_at(i)[word];
        pair = cvt_rn_x2<f16>(__uint_as_float(pair << 16) * factor, __uint_as_float(pair & 0xffff0000u) * factor);
      }
    __syncthreads();
    return __uint_as_float(exponent << 23);
  }
}

/// The four elements of a word, in two pairs.
__device__ __forceinline__ void widen_word(unsigned (&to)[2], unsigned word) {
  to[0] = widened_pair(word, 0);
  to[1] = widened_pair(word, 1);
}

/// Loads a fragment of 16 rows of queries by 16 columns from 16 * step on, in the order of columns that keys of 8 bits have.
template <typename Query>
__device__ __forceinline__ void load_queries_by_fours(unsigned (&a)[4], unsigned tile, int row, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32, column = lane % 4;
  const char* const memory = dynamic_shared() + (tile - shared_address(dynamic_shared()));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto four = *reinterpret_cast<const uint2*>(
        memory + Query::offset(row + lane / 4 + 8 * half, step * 2 + column / 2) + column % 2 * 8);
    a[half] = four.x;
    a[2 + half] = four.y;
  }
}

/// Adds products of 16 queries from `row` on by all keys of a tile, over 32 columns from 32 * step on.
template <typename Query, typename Key, int tile_n, int count>
__device__ __forceinline__ void multiply_byte_keys(float (&scores)[count], unsigned queries, int row, unsigned tile,
                                                   int step) {
  unsigned a[2][4], words[4];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (2 * step + half < Query::k_steps) load_queries_by_fours<Query>(a[half], queries, row, 2 * step + half);
#pragma unroll
  for (int i = 0; i < tile_n / 16; ++i) {
    Key::load_b(words, tile, i * 16, step);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // the tile's 16 columns, then the next
      if (2 * step + half >= Query::k_steps) continue;
      unsigned low[2], high[2];
      widen_word(low, words[half]);
      widen_word(high, words[2 + half]);
      multiply<f16>(scores, i, a[half], {low[0], low[1], high[0], high[1]});
    }
  }
}

/// Adds products of weights by 16 keys of 32 columns, of which `words` are what ldmatrix leaves, to sums from column 32 * at on.
template <int count>
__device__ __forceinline__ void multiply_byte_values(float (&sums)[count], int at, const unsigned (&weights)[4],
                                                     const unsigned (&words)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned even[2], odd[2];
    widen_word(even, __byte_perm(words[2 * half], words[2 * half + 1], 0x6420));
    widen_word(odd, __byte_perm(words[2 * half], words[2 * half + 1], 0x7531));
    multiply<f16>(sums, 2 * at + half, weights, {even[0], even[1], odd[0], odd[1]});
  }
}

/// Stores one of the thread's two rows (`half`) of such sums, in `unit`.
template <int value_dim, int count>
__device__ __forceinline__ void store_byte_sums(float* to, const float (&sums)[count], int half, float unit) {
  float* const own = to + threadIdx.x % 4 * 4;
#pragma unroll
  for (int i = 0; i < (value_dim + 15) / 16; ++i) {
    if (value_dim % 16 != 0 && 16 * i + static_cast<int>(threadIdx.x) % 4 * 4 >= value_dim) continue;
    const float *even = sums + 8 * i + 2 * half, *odd = even + 4;
    *reinterpret_cast<float4*>(own + 16 * i) =
        make_float4(even[0] * unit, odd[0] * unit, even[1] * unit, odd[1] * unit);
  }
}

}  // namespace kiln::attention
