// Elements moved several at a time: one access of 2, 4, 8 or 16 bytes.
#pragma once

#include "common/types.cuh"

namespace kiln {

/// N elements in registers; an aggregate, indexed with constants only so that it stays there.
template <typename T, int N>
struct vec {
  T at[N];
};

namespace detail {

template <int Bytes>
struct word;
template <>
struct word<1> {
  using type = unsigned char;
};
template <>
struct word<2> {
  using type = unsigned short;
};
template <>
struct word<4> {
  using type = unsigned;
};
template <>
struct word<8> {
  using type = uint2;
};
template <>
struct word<16> {
  using type = uint4;
};
template <typename T, int N>
using word_of = typename word<static_cast<int>(sizeof(T)) * N>::type;

}  // namespace detail

/// True when `pointer` is a multiple of Bytes (a power of two).
template <int Bytes>
__device__ __forceinline__ bool is_aligned(const void* pointer) {
  return (reinterpret_cast<unsigned long long>(pointer) & (Bytes - 1)) == 0;
}

/// One access of N * sizeof(T) bytes (at most 16); `from` must be aligned to them.
template <int N, typename T>
__device__ __forceinline__ vec<T, N> load(const T* from) {
  return __builtin_bit_cast(vec<T, N>, *reinterpret_cast<const detail::word_of<T, N>*>(from));
}
/// The same for data read once: the line is the first to be evicted.
template <int N, typename T>
__device__ __forceinline__ vec<T, N> load_streaming(const T* from) {
  return __builtin_bit_cast(vec<T, N>, __ldcs(reinterpret_cast<const detail::word_of<T, N>*>(from)));
}
template <int N, typename T>
__device__ __forceinline__ void store(T* to, const vec<T, N>& values) {
  *reinterpret_cast<detail::word_of<T, N>*>(to) = __builtin_bit_cast(detail::word_of<T, N>, values);
}
/// The same for data that this kernel does not read again.
template <int N, typename T>
__device__ __forceinline__ void store_streaming(T* to, const vec<T, N>& values) {
  __stcs(reinterpret_cast<detail::word_of<T, N>*>(to), __builtin_bit_cast(detail::word_of<T, N>, values));
}

}  // namespace kiln
