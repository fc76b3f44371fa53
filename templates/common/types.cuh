// Element types and their conversions, for sources that include no toolkit header.
//
// Small floats are bits in a struct; arithmetic is done in float. to_float and from_float convert one element, rounding
// to nearest even. The 8-bit floats saturate to their largest finite value, as the hardware does.
#pragma once

namespace kiln {

struct alignas(2) bf16 {
  unsigned short bits;
};
struct alignas(2) f16 {
  unsigned short bits;
};
struct e4m3 {  // no infinity; NaN is 0x7f and 0xff
  unsigned char bits;
};
struct e5m2 {
  unsigned char bits;
};

/// A TMA descriptor, taken as `const __grid_constant__ tensor_map`.
struct alignas(64) tensor_map {
  unsigned long long opaque[16];
};

template <typename T>
inline constexpr bool is_small_float = false;
template <>
inline constexpr bool is_small_float<bf16> = true;
template <>
inline constexpr bool is_small_float<f16> = true;
template <>
inline constexpr bool is_small_float<e4m3> = true;
template <>
inline constexpr bool is_small_float<e5m2> = true;

template <typename T, typename U>
inline constexpr bool is_same = false;
template <typename T>
inline constexpr bool is_same<T, T> = true;

template <typename T>
inline constexpr bool is_float = is_small_float<T> || is_same<T, float> || is_same<T, double>;

namespace detail {

/// A product that keeps subnormals whatever the compiler's flags.
__device__ __forceinline__ float exact_product(float a, float b) {
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}

// The 8-bit formats have hardware conversions from sm_89 on; these are for older chips. MantissaBits is 3 for e4m3, 2 for e5m2.

template <int MantissaBits>
__device__ __forceinline__ float unpack_byte(unsigned bits) {
  constexpr unsigned bias = MantissaBits == 3 ? 7 : 15;
  const unsigned sign = (bits & 0x80u) << 24;
  const unsigned magnitude = bits & 0x7fu;
  if (MantissaBits == 3 ? magnitude == 0x7fu : magnitude > 0x7cu) return __uint_as_float(sign | 0x7fffffffu);
  if (MantissaBits == 2 && magnitude == 0x7cu) return __uint_as_float(sign | 0x7f800000u);
  // Shifted into place, the exponent has the wrong bias; one product corrects it, subnormals included.
  const float value =
      exact_product(__uint_as_float(magnitude << (23 - MantissaBits)), __uint_as_float((254u - bias) << 23));
  return __uint_as_float(sign | __float_as_uint(value));
}

template <int MantissaBits>
__device__ __forceinline__ unsigned char pack_byte(float value) {
  constexpr unsigned bias = MantissaBits == 3 ? 7 : 15;
  constexpr unsigned largest = MantissaBits == 3 ? 0x7e : 0x7b;
  const unsigned sign = (__float_as_uint(value) >> 24) & 0x80u;
  const unsigned magnitude = __float_as_uint(value) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<unsigned char>(sign | 0x7fu);
  if (magnitude >= (127u + 20u) << 23) return static_cast<unsigned char>(sign | largest);
  // Adding a float whose last place is worth the target's spacing rounds to that spacing, ties to even.
  const unsigned exponent = max(magnitude >> 23, 128u - bias);
  const float anchor = __uint_as_float((exponent + 23 - MantissaBits) << 23);
  const float rounded = __fsub_rn(__fadd_rn(__uint_as_float(magnitude), anchor), anchor);
  const unsigned bits = __float_as_uint(exact_product(rounded, __uint_as_float(bias << 23))) >> (23 - MantissaBits);
  return static_cast<unsigned char>(sign | min(bits, largest));
}

}  // namespace detail

template <typename T>
__device__ __forceinline__ float to_float(T value) {
  return static_cast<float>(value);
}
template <>
__device__ __forceinline__ float to_float(bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
template <>
__device__ __forceinline__ float to_float(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
template <>
__device__ __forceinline__ float to_float(e4m3 value) {
#if __CUDA_ARCH__ >= 890
  unsigned halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(value.bits)));
  return to_float(f16{static_cast<unsigned short>(halves)});
#else
  return detail::unpack_byte<3>(value.bits);
#endif
}
template <>
__device__ __forceinline__ float to_float(e5m2 value) {
  return to_float(f16{static_cast<unsigned short>(value.bits << 8)});  // e5m2 is the upper half of f16
}

namespace detail {

template <typename T>
struct convert {
  static __device__ __forceinline__ T from(float value) { return static_cast<T>(value); }
};
template <>
struct convert<bf16> {
  static __device__ __forceinline__ bf16 from(float value) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
};
template <>
struct convert<f16> {
  static __device__ __forceinline__ f16 from(float value) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
};
template <>
struct convert<e4m3> {
  static __device__ __forceinline__ e4m3 from(float value) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    return {static_cast<unsigned char>(pair)};
#else
    return {pack_byte<3>(value)};
#endif
  }
};
template <>
struct convert<e5m2> {
  static __device__ __forceinline__ e5m2 from(float value) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    return {static_cast<unsigned char>(pair)};
#else
    return {pack_byte<2>(value)};
#endif
  }
};

}  // namespace detail

template <typename T>
__device__ __forceinline__ T from_float(float value) {
  return detail::convert<T>::from(value);
}

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

/// Any element as a double: what references accumulate in.
template <typename T>
__device__ __forceinline__ double to_double(T value) {
  if constexpr (is_small_float<T>) {
    return to_float(value);
  } else {
    return static_cast<double>(value);
  }
}

/// Stores a reference's double as float, or as itself where the reference keeps 64 bits.
template <typename R>
__device__ __forceinline__ R from_double(double value) {
  if constexpr (is_small_float<R>) {
    return from_float<R>(static_cast<float>(value));
  } else {
    return static_cast<R>(value);
  }
}

}  // namespace kiln
