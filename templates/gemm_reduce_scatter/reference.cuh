#pragma once

#include "common/gemm/reference.cuh"

namespace kiln {

/// x or w of all ranks, one after another along k.
template <typename T>
struct ExactRanks {
  const T* first;
  long long rank_stride, k_of_rank;
  long long outer, k;
  static constexpr bool runs_along_k = true;

  __device__ double at(long long row, long long column) const {
    if (row >= outer || column >= k) return 0;
    return to_double(first[column / k_of_rank * rank_stride + row * k_of_rank + column % k_of_rank]);
  }
};

/// grid (ceil(n / 64), any number of rows of tiles), block (16, 16). x and w are those of all ranks, dense from rank to rank.
template <typename T>
__global__ void __launch_bounds__(gemm::exact_threads)
    gemm_reduce_scatter_reference(const T* x, const T* w, float* y, long long rows, long long n, long long k,
                                  long long part_stride, long long world, int rank) {
  using namespace gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  const long long x_elements = world * part_stride * k;
  const ExactRanks<T> of_x = {x + rank * part_stride * k, x_elements, k, rows, world * k};
  const ExactRanks<T> of_w = {w, n * k, k, n, world * k};
  const ExactEnding<Plain> ending = {y, nullptr, nullptr, nullptr, n, 0, 1.0, rows, n};
  multiply_exactly(of_x, of_w, 0, ending);
}

}  // namespace kiln
