// Products and what follows them in f64, as the references of gemm and its like have them: blocks of 32 x 32 threads, one
// element of the product each.
#pragma once

#include "common/gemm/choices.cuh"
#include "common/types.cuh"

namespace kiln::gemm {

/// x or w, seen as [outer, k] whichever way it lies, with its scales: one for all, one for each of `outer`, or one for each
/// `outer_a_scale` of them and 128 of k.
template <typename T, bool along_k, Scaling scaling, int outer_a_scale>
struct ExactOperand {
  const T* values;
  const float* scales;
  long long stride, scale_stride, scale_k_stride;
  long long outer, k;
  static constexpr bool runs_along_k = along_k;

  __device__ double at(long long row, long long column) const {
    if (row >= outer || column >= k) return 0;
    const double value = to_double(values[along_k ? row * stride + column : column * stride + row]);
    if constexpr (scaling == Scaling::none) return value;
    if constexpr (scaling == Scaling::tensor) return value * scales[0];
    if constexpr (scaling == Scaling::row) return value * scales[row * scale_stride];
    return value * scales[row / outer_a_scale * scale_stride + column / scaling_block * scale_k_stride];
  }
};

/// The product at (first_row + threadIdx.y, first_column + threadIdx.x). All threads of the block take part.
template <typename Rows, typename Columns>
__device__ double exact_sum(const Rows& rows, const Columns& columns, long long first_row, long long first_column) {
  __shared__ double row_tile[32][33], column_tile[32][33];  // [row of the product, or column][k]
  const int tx = threadIdx.x, ty = threadIdx.y;
  // threadIdx.x runs along memory, whichever way an operand lies.
  const int row = Rows::runs_along_k ? ty : tx, row_k = Rows::runs_along_k ? tx : ty;
  const int column = Columns::runs_along_k ? ty : tx, column_k = Columns::runs_along_k ? tx : ty;
  double sum = 0;
  for (long long first_k = 0; first_k < rows.k; first_k += 32) {
    row_tile[row][row_k] = rows.at(first_row + row, first_k + row_k);
    column_tile[column][column_k] = columns.at(first_column + column, first_k + column_k);
    __syncthreads();
    for (int i = 0; i < 32; ++i) sum += row_tile[ty][i] * column_tile[tx][i];
    __syncthreads();
  }
  return sum;
}

template <Activation activation>
__device__ double activate_exactly(double value) {
  if constexpr (activation == Activation::relu) return value < 0 ? 0 : value;
  if constexpr (activation == Activation::gelu) return 0.5 * value * erfc(-value * 0.70710678118654752440);
  if constexpr (activation == Activation::silu) return value / (1 + exp(-value));
  return value;
}

/// From the sums of the product to y, which is written as f32 and read, where results accumulate, as what Out holds.
template <class Config>
struct ExactEnding {
  using Out = typename Config::out;
  float* y;
  const Out* bias;
  const Out* residual;
  const float* y_scale;
  long long y_stride, residual_stride;
  double scale;
  long long rows, columns;

  /// Of all threads of a warp, with neighbouring columns in neighbouring lanes.
  __device__ void store(long long row, long long column, double sum) const {
    double value = scale * sum;
    if (bias != nullptr && column < columns) value += to_double(bias[column]);
    if constexpr (Config::activation == Activation::swiglu) {
      const double right = __shfl_down_sync(0xffffffffu, value, 1);
      if (column % 2 != 0) return;
      column /= 2;
      value = activate_exactly<Activation::silu>(value) * right;
    } else {
      value = activate_exactly<Config::activation>(value);
    }
    if (row >= rows || column >= columns / Config::joined) return;
    const bool scaled = is_same<Out, e4m3> && y_scale != nullptr;
    const double unit = scaled ? *y_scale : 1.0;
    if constexpr (Config::residual == Residual::add) value += to_double(residual[row * residual_stride + column]);
    float& to = y[row * y_stride + column];
    if constexpr (Config::accumulate == Accumulate::yes) value += to_double(from_float<Out>(to)) * unit;
    value /= unit;
    if constexpr (is_same<Out, e4m3>) value = value > 448.0 ? 448.0 : value < -448.0 ? -448.0 : value;
    to = static_cast<float>(value);
  }
};

}  // namespace kiln::gemm
