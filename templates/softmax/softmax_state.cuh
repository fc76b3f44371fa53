// What a softmax must know of a part of a row: the largest element, and the sum of exp(element - largest).
#pragma once

#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln {

/// exp(x) within 2^-21 of itself for the x <= 0 that matter here; 0 where it would be subnormal.
__device__ __forceinline__ float fast_exp(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
  return result;
}

struct softmax_state {
  float largest;
  float sum;

  static __device__ __forceinline__ softmax_state empty() { return {-infinity(), 0.0f}; }
  static __device__ __forceinline__ softmax_state of(float element) {
    const softmax_state alone{fmaxf(element, -infinity()), 0.0f};
    return {alone.largest, fast_exp(element - alone.origin())};
  }
  /// What is subtracted before exp: 0 where nothing is above -inf, since -inf - -inf is NaN.
  __device__ __forceinline__ float origin() const { return largest == -infinity() ? 0.0f : largest; }
  /// Elements: a vec or a row_share.
  template <typename Elements>
  __device__ __forceinline__ void absorb(const Elements& elements) {
    using T = typename Elements::element;
    const auto values = elements.template map<float>([](T element) { return to_float(element); });
    const float before = largest;
    largest = fmaxf(before, values.reduce(maximum{}));
    const float from = origin();
    sum *= fast_exp(before - from);
    sum += values.template map<float>([from](float value) { return fast_exp(value - from); }).reduce(add{});
  }
  /// What turns a part's exponentials, taken from its own origin, into the row's softmax. 0 for a fully masked row.
  __device__ __forceinline__ float scale_of(const softmax_state& part) const {
    return sum == 0.0f ? 0.0f : fast_exp(part.largest - origin()) / sum;
  }
};

struct merge {
  /// A NaN or +inf that either saw ends in the sum, and so in every output of the row.
  __device__ __forceinline__ softmax_state operator()(const softmax_state& a, const softmax_state& b) const {
    softmax_state both{fmaxf(a.largest, b.largest), 0.0f};
    const float origin = both.origin();
    both.sum = a.sum * fast_exp(a.largest - origin) + b.sum * fast_exp(b.largest - origin);
    return both;
  }
};

__device__ __forceinline__ softmax_state shuffle_xor(const softmax_state& state, int mask) {
  return {shuffle_xor(state.largest, mask), shuffle_xor(state.sum, mask)};
}

}  // namespace kiln
