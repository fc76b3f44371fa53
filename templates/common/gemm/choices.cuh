// The words that select among the kernels of gemm and its like, as their op.toml spell them.
#pragma once

namespace kiln::gemm {

/// How x, then w, lies in memory, in BLAS's letters with the product written x * op(w). For n, x is [m, k] and w is [k,
/// n]. For t, x is [k, m] and w is [n, k]. So `nt` is y = x W^T of a linear layer.
enum class Layout { nt, nn, tn, tt };

/// True when the elements of one row of x, or of one column of op(w), are neighbours: k runs along memory.
template <Layout layout>
inline constexpr bool x_runs_along_k = layout == Layout::nt || layout == Layout::nn;
template <Layout layout>
inline constexpr bool w_runs_along_k = layout == Layout::nt || layout == Layout::tt;

/// swiglu joins neighbouring columns of the product: silu(z[2j]) * z[2j + 1], so that y has half as many.
enum class Activation { none, relu, gelu, silu, swiglu };

/// What is added after the activation.
enum class Residual { none, add };

/// What products are multiplied by. With `tensor` it is one number of x and one of w. With `row` it is one for each row
/// of y and one for each column. With `block` it is one for each row and 128 of k, and one for each 128 columns and 128
/// of k.
enum class Scaling { none, tensor, row, block };
inline constexpr int scaling_block = 128;

/// Whether the result is added to what y holds.
enum class Accumulate { no, yes };

/// All that is done to a product before it is y, of type Out.
template <typename Out, Activation activation_, Residual residual_, Scaling scaling_, Accumulate accumulate_>
struct Ending {
  using out = Out;
  static constexpr Activation activation = activation_;
  static constexpr Residual residual = residual_;
  static constexpr Scaling scaling = scaling_;
  static constexpr Accumulate accumulate = accumulate_;
  /// Neighbouring columns of the product that make one of y.
  static constexpr int joined = activation == Activation::swiglu ? 2 : 1;
};

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
    static_assert(activation == Activation::none);
    return value;
  }
}

}  // namespace kiln::gemm
