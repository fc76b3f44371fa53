// Products and what follows them in f64, as the references of gemm and its like have them. Blocks of 16 x 16 threads
// multiply a tile of 64 x 64, 16 elements each. A thread with one element would read two operands from shared memory
// for each product. By count that takes an H200 six times as long as the product.
#pragma once

#include "common/gemm/choices.cuh"
#include "common/types.cuh"

namespace kiln::gemm {

inline constexpr int exact_side = 16, exact_each = 4;          // threads along either side of a block, elements of each
inline constexpr int exact_tile = exact_side * exact_each;     // of the product, along either side
inline constexpr int exact_threads = exact_side * exact_side;  // of a block
inline constexpr int exact_k = 16;                             // that are multiplied between two barriers

/// x or w, seen as [outer, k] whichever way it lies, with its scales. There is one for all, one for each of `outer`, or
/// one for each `outer_a_scale` of them and 128 of k.
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

using ExactSlice = double[exact_k][exact_tile + 1];  // of an operand: [k][row of the product, or column]

/// threadIdx.x runs along memory, whichever way the operand lies.
template <typename Operand>
__device__ void fill_exactly(ExactSlice& slice, const Operand& operand, long long first, long long first_k) {
  const int tx = threadIdx.x, ty = threadIdx.y;
  for (int i = 0; i < exact_each; ++i) {
    const int outer = (Operand::runs_along_k ? ty : tx) + i * exact_side, at_k = Operand::runs_along_k ? tx : ty;
    slice[at_k][outer] = operand.at(first + outer, first_k + at_k);
  }
}

/// Hands the tile of the product at (first_row, first_column) to `ending`. All threads of the block take part; a thread's
/// elements are `exact_side` apart, so that neighbouring lanes have neighbouring columns.
template <typename Rows, typename Columns, typename Ending>
__device__ void multiply_tile_exactly(const Rows& rows, const Columns& columns, long long first_row,
                                      long long first_column, const Ending& ending) {
  __shared__ ExactSlice of_rows, of_columns;
  const int tx = threadIdx.x, ty = threadIdx.y;
  double sums[exact_each][exact_each] = {};
  for (long long first_k = 0; first_k < rows.k; first_k += exact_k) {
    fill_exactly(of_rows, rows, first_row, first_k);
    fill_exactly(of_columns, columns, first_column, first_k);
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < exact_k; ++k) {
      double column[exact_each];
#pragma unroll
      for (int j = 0; j < exact_each; ++j) column[j] = of_columns[k][tx + j * exact_side];
#pragma unroll
      for (int i = 0; i < exact_each; ++i) {
        const double row = of_rows[k][ty + i * exact_side];
#pragma unroll
        for (int j = 0; j < exact_each; ++j) sums[i][j] += row * column[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < exact_each; ++i) {
#pragma unroll
    for (int j = 0; j < exact_each; ++j)
      ending.store(first_row + ty + i * exact_side, first_column + tx + j * exact_side, sums[i][j]);
  }
}

/// The block's part of the product from `first_row` on: columns by blockIdx.x, and of the tiles below each other each
/// gridDim.y-th.
template <typename Rows, typename Columns, typename Ending>
__device__ void multiply_exactly(const Rows& rows, const Columns& columns, long long first_row, const Ending& ending) {
  constexpr long long tile = exact_tile;
  for (long long row = first_row + tile * blockIdx.y; row < rows.outer; row += tile * gridDim.y)
    multiply_tile_exactly(rows, columns, row, tile * blockIdx.x, ending);
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

  /// REQUIRES: all threads of a warp call it, with neighbouring columns in neighbouring lanes.
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
