// The words that select among gemm's kernels, as op.toml spells them.
#pragma once

namespace kiln::gemm {

/// How x, then w, lies in memory, in BLAS's letters with the product written x * op(w):
/// x is [m, k] for n and [k, m] for t; w is [k, n] for n and [n, k] for t. So `nt` is y = x W^T of a linear layer.
enum class Layout { nt, nn, tn, tt };

/// True when the elements of one row of x, or of one column of op(w), are neighbours: k runs along memory.
template <Layout layout>
inline constexpr bool x_runs_along_k = layout == Layout::nt || layout == Layout::nn;
template <Layout layout>
inline constexpr bool w_runs_along_k = layout == Layout::nt || layout == Layout::tt;

enum class Activation { none, relu, gelu, silu };

/// gelu is the exact form, x * Phi(x) by erf, not the tanh approximation.
template <Activation activation>
__device__ __forceinline__ float activate(float value) {
  if constexpr (activation == Activation::relu) {
    return value < 0.0f ? 0.0f : value;  // a NaN stays one
  } else if constexpr (activation == Activation::gelu) {
    return 0.5f * value * (1.0f + erff(value * 0.70710678118654752f));
  } else if constexpr (activation == Activation::silu) {
    return __fdividef(value, 1.0f + expf(-value));
  } else {
    return value;
  }
}

}  // namespace kiln::gemm
