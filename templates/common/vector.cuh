// Elements moved several at a time: one access of 2, 4, 8 or 16 bytes.
#pragma once

#include "common/types.cuh"

namespace kiln {

/// N elements in registers; an aggregate, indexed with constants only so that it stays there.
template <typename T, int N>
struct vec {
  static_assert((N & (N - 1)) == 0);
  using element = T;
  T at[N];

  template <typename U, typename Make>
  __device__ __forceinline__ vec<U, N> map(Make make) const {
    vec<U, N> made;
#pragma unroll
    for (int i = 0; i < N; ++i) made.at[i] = make(at[i]);
    return made;
  }
  /// As a tree, whose branches do not wait for each other.
  template <typename Combine>
  __device__ __forceinline__ T reduce(Combine combine) const {
    vec sofar = *this;
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; ++i) sofar.at[i] = combine(sofar.at[i], sofar.at[i + half]);
    }
    return sofar.at[0];
  }
};

namespace detail {

template <int Bytes>
struct word {  // more than one access moves
  template <typename T, int N>
  using packed = vec<T, N>;
};
template <>
struct word<1> {
  template <typename T, int N>
  using packed = unsigned char;
};
template <>
struct word<2> {
  template <typename T, int N>
  using packed = unsigned short;
};
template <>
struct word<4> {
  template <typename T, int N>
  using packed = unsigned;
};
template <>
struct word<8> {
  template <typename T, int N>
  using packed = uint2;
};
template <>
struct word<16> {
  template <typename T, int N>
  using packed = uint4;
};

}  // namespace detail

/// The same N elements as the word that one access moves; just a vec where they are more than 16 bytes.
template <typename T, int N>
using packed = typename detail::word<static_cast<int>(sizeof(T)) * N>::template packed<T, N>;

template <typename T, int N>
__device__ __forceinline__ packed<T, N> pack(const vec<T, N>& values) {
  return __builtin_bit_cast(packed<T, N>, values);
}
template <typename T, int N>
__device__ __forceinline__ vec<T, N> unpack(const packed<T, N>& word) {
  return __builtin_bit_cast(vec<T, N>, word);
}

/// True when `pointer` is a multiple of Bytes (a power of two).
template <int Bytes>
__device__ __forceinline__ bool is_aligned(const void* pointer) {
  return (reinterpret_cast<unsigned long long>(pointer) & (Bytes - 1)) == 0;
}

// One access of N * sizeof(T) bytes, at most 16, to which the address must be aligned. No eviction hints: on an H200
// evict-first loads and stores made row kernels 3 to 5 % slower.

template <int N, typename T>
__device__ __forceinline__ packed<T, N> load_packed(const T* from) {
  return *reinterpret_cast<const packed<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void store_packed(T* to, const packed<T, N>& values) {
  *reinterpret_cast<packed<T, N>*>(to) = values;
}
template <int N, typename T>
__device__ __forceinline__ vec<T, N> load(const T* from) {
  return unpack<T, N>(load_packed<N>(from));
}
template <int N, typename T>
__device__ __forceinline__ void store(T* to, const vec<T, N>& values) {
  store_packed<N>(to, pack(values));
}

}  // namespace kiln
