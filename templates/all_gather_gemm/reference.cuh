#pragma once

#include "common/gemm/reference.cuh"

namespace kiln {

/// grid (ceil(n / 64), any number of rows of tiles, ranks), block (16, 16). x is [ranks, rows, k], dense.
template <typename T>
__global__ void __launch_bounds__(gemm::exact_threads)
    all_gather_gemm_reference(const T* x, const T* w, float* y, long long rows, long long n, long long k,
                              long long rank_stride) {
  using namespace gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  const long long rank = blockIdx.z;
  const ExactOperand<T, true, Scaling::none, 1> of_x = {x + rank * rows * k, nullptr, k, 1, 1, rows, k};
  const ExactOperand<T, true, Scaling::none, 1> of_w = {w, nullptr, k, 1, 1, n, k};
  const ExactEnding<Plain> ending = {y + rank * rank_stride * n, nullptr, nullptr, nullptr, n, 0, 1.0, rows, n};
  multiply_exactly(of_x, of_w, 0, ending);
}

/// grid (any number of rows, ranks).
template <typename T>
__global__ void __launch_bounds__(256)
    gathered_reference(const T* x, float* gathered, long long rows, long long k, long long rank_stride) {
  if (gathered == nullptr) return;
  const long long rank = blockIdx.y;
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    for (long long column = threadIdx.x; column < k; column += 256)
      gathered[(rank * rank_stride + row) * k + column] = to_float(x[(rank * rows + row) * k + column]);
  }
}

}  // namespace kiln
