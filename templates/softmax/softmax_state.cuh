// What a softmax must know of a part of a row: the largest logit, and the sum of exp(logit - largest).
#pragma once

#include "common/reduce.cuh"
#include "common/types.cuh"

namespace kiln {

/// exp of differences of logits, whose unit may be any: base 2^rate. Within 2^-21 of itself for the differences <= 0
/// that matter here; 0 where it would be subnormal.
struct exponential {
  float rate;

  __device__ __forceinline__ float operator()(float difference) const {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(difference * rate));
    return result;
  }
};

struct softmax_state {
  float largest;
  float sum;

  static __device__ __forceinline__ softmax_state empty() { return {-infinity(), 0.0f}; }
  static __device__ __forceinline__ softmax_state of(float logit, exponential exp) {
    const softmax_state alone{fmaxf(logit, -infinity()), 0.0f};
    return {alone.largest, exp(logit - alone.origin())};
  }
  /// What is subtracted before exp: 0 where nothing is above -inf, since -inf - -inf is NaN.
  __device__ __forceinline__ float origin() const { return largest == -infinity() ? 0.0f : largest; }
  /// Logits: a vec or a row_share of float.
  template <typename Logits>
  __device__ __forceinline__ void absorb(const Logits& logits, exponential exp) {
    const float before = largest;
    largest = fmaxf(before, logits.reduce(maximum{}));
    const float from = origin();
    sum *= exp(before - from);
    sum += logits.template map<float>([=](float logit) { return exp(logit - from); }).reduce(add{});
  }
  /// What turns a part's exponentials, taken from its own origin, into the row's softmax. 0 for a fully masked row.
  __device__ __forceinline__ float scale_of(const softmax_state& part, exponential exp) const {
    return sum == 0.0f ? 0.0f : exp(part.largest - origin()) / sum;
  }
};

struct merge {
  exponential exp;

  /// A NaN or +inf that either saw ends in the sum, and so in every output of the row.
  __device__ __forceinline__ softmax_state operator()(const softmax_state& a, const softmax_state& b) const {
    softmax_state both{fmaxf(a.largest, b.largest), 0.0f};
    const float origin = both.origin();
    both.sum = a.sum * exp(a.largest - origin) + b.sum * exp(b.largest - origin);
    return both;
  }
};

__device__ __forceinline__ softmax_state shuffle_xor(const softmax_state& state, int mask) {
  return {shuffle_xor(state.largest, mask), shuffle_xor(state.sum, mask)};
}

}  // namespace kiln
