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
    if constexpr (N == 1) {
      return at[0];
    } else {
      vec<T, N / 2> half;
#pragma unroll
      for (int i = 0; i < N / 2; ++i) half.at[i] = combine(at[i], at[i + N / 2]);
      return half.reduce(combine);
    }
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

/// N elements as the word that one access moves; a vec where they are more than 16 bytes.
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

// Conversions of whole words, half the instructions of one element at a time.

template <typename T, int N>
__device__ __forceinline__ vec<float, N> to_floats(const packed<T, N>& word) {
  vec<float, N> floats;
  if constexpr (is_same<T, bf16> && N > 1) {
    const auto pairs = __builtin_bit_cast(vec<unsigned, N / 2>, word);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      floats.at[2 * i] = __uint_as_float(pairs.at[i] << 16);
      floats.at[2 * i + 1] = __uint_as_float(pairs.at[i] & 0xffff0000u);
    }
  } else if constexpr (is_same<T, f16> && N > 1) {
    const auto pairs = __builtin_bit_cast(vec<unsigned, N / 2>, word);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      asm("{\n.reg .f16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
          : "=f"(floats.at[2 * i]), "=f"(floats.at[2 * i + 1])
          : "r"(pairs.at[i]));
    }
  } else {
    floats = unpack<T, N>(word).template map<float>([](T value) { return to_float(value); });
  }
  return floats;
}

template <typename T, int N>
__device__ __forceinline__ packed<T, N> from_floats(const vec<float, N>& floats) {
  if constexpr ((is_same<T, bf16> || is_same<T, f16>)&&N > 1) {
    vec<unsigned, N / 2> pairs;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      if constexpr (is_same<T, bf16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs.at[i]) : "f"(floats.at[2 * i + 1]), "f"(floats.at[2 * i]));
      } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pairs.at[i]) : "f"(floats.at[2 * i + 1]), "f"(floats.at[2 * i]));
      }
    }
    return __builtin_bit_cast(packed<T, N>, pairs);
  } else {
    return pack(floats.template map<T>([](float value) { return from_float<T>(value); }));
  }
}

/// N neighbours as they lie in memory, in as many words of at most 16 bytes as they need.
template <typename T, int N>
struct words {
  static constexpr int width = N * static_cast<int>(sizeof(T)) < 16 ? N : 16 / static_cast<int>(sizeof(T));
  static constexpr int bytes = width * static_cast<int>(sizeof(T));  // that addresses are to be multiples of
  static constexpr int count = N / width;
  packed<T, width> at[count];

  static __device__ __forceinline__ words load(const T* from) {
    words loaded;
#pragma unroll
    for (int i = 0; i < count; ++i) loaded.at[i] = load_packed<width>(from + i * width);
    return loaded;
  }
  static __device__ __forceinline__ words of(const vec<float, N>& floats) {
    words made;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      vec<float, width> part;
#pragma unroll
      for (int j = 0; j < width; ++j) part.at[j] = floats.at[i * width + j];
      made.at[i] = from_floats<T, width>(part);
    }
    return made;
  }
  __device__ __forceinline__ void store(T* to) const {
#pragma unroll
    for (int i = 0; i < count; ++i) store_packed<width>(to + i * width, at[i]);
  }
  __device__ __forceinline__ vec<float, N> floats() const {
    vec<float, N> all;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const vec<float, width> part = to_floats<T, width>(at[i]);
#pragma unroll
      for (int j = 0; j < width; ++j) all.at[i * width + j] = part.at[j];
    }
    return all;
  }
};

}  // namespace kiln
