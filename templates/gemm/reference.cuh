// gemm in f64, for verification: a 32 x 32 tile of y a block, one element a thread, both operands through shared
// memory.
#pragma once

#include "choices.cuh"
#include "common/types.cuh"

namespace kiln::gemm {

template <Activation activation>
__device__ double activate_exactly(double value) {
  if constexpr (activation == Activation::relu) return value < 0 ? 0 : value;
  if constexpr (activation == Activation::gelu) return 0.5 * value * erfc(-value * 0.70710678118654752440);
  if constexpr (activation == Activation::silu) return value / (1 + exp(-value));
  return value;
}

}  // namespace kiln::gemm

/// grid (ceil(n / 32), any number of rows of tiles), block (32, 32). `bias` may be null. Strides in elements.
template <typename T, kiln::gemm::Layout layout, kiln::gemm::Activation activation>
__global__ void __launch_bounds__(1024)
    gemm_reference(const T* x, const T* w, const T* bias, float* y, long long m, long long n, long long k,
                   long long x_stride, long long w_stride, long long y_stride) {
  using namespace kiln::gemm;
  constexpr bool x_along_k = x_runs_along_k<layout>, w_along_k = w_runs_along_k<layout>;
  __shared__ double x_tile[32][33], w_tile[32][33];  // [row of y or column of y][k]
  const int tx = threadIdx.x, ty = threadIdx.y;
  const long long first_column = 32ll * blockIdx.x;

  for (long long first_row = 32ll * blockIdx.y; first_row < m; first_row += 32ll * gridDim.y) {
    double sum = 0;
    for (long long first_k = 0; first_k < k; first_k += 32) {
      // threadIdx.x runs along memory, whichever way an operand lies.
      const long long x_row = first_row + (x_along_k ? ty : tx), x_k = first_k + (x_along_k ? tx : ty);
      const long long w_column = first_column + (w_along_k ? ty : tx), w_k = first_k + (w_along_k ? tx : ty);
      double x_value = 0, w_value = 0;
      if (x_row < m && x_k < k)
        x_value = kiln::to_double(x[x_along_k ? x_row * x_stride + x_k : x_k * x_stride + x_row]);
      if (w_column < n && w_k < k)
        w_value = kiln::to_double(w[w_along_k ? w_column * w_stride + w_k : w_k * w_stride + w_column]);
      x_tile[x_along_k ? ty : tx][x_along_k ? tx : ty] = x_value;
      w_tile[w_along_k ? ty : tx][w_along_k ? tx : ty] = w_value;
      __syncthreads();
      for (int i = 0; i < 32; ++i) sum += x_tile[ty][i] * w_tile[tx][i];
      __syncthreads();
    }
    const long long row = first_row + ty, column = first_column + tx;
    if (row < m && column < n) {
      if (bias != nullptr) sum += kiln::to_double(bias[column]);
      y[row * y_stride + column] = static_cast<float>(activate_exactly<activation>(sum));
    }
  }
}
