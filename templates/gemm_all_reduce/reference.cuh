#pragma once

#include "common/gemm/reference.cuh"

namespace kiln {

/// x or w of all ranks, one after another along k.
template <typename T>
struct RanksAlongK {
  const T* first;
  long long outer, k_of_rank, k;
  static constexpr bool runs_along_k = true;

  __device__ double at(long long row, long long column) const {
    if (row >= outer || column >= k) return 0;
    const long long rank = column / k_of_rank;
    return to_double(first[(rank * outer + row) * k_of_rank + column % k_of_rank]);
  }
};

/// grid (ceil(n / 64), any number of rows of tiles), block (16, 16). x and w are those of all ranks, dense from rank to rank.
template <typename T>
__global__ void __launch_bounds__(gemm::exact_threads)
    gemm_all_reduce_reference(const T* x, const T* w, float* y, long long rows, long long n, long long k,
                              long long world) {
  using namespace gemm;
  using Plain = Ending<T, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  const RanksAlongK<T> of_x = {x, rows, k, world * k};
  const RanksAlongK<T> of_w = {w, n, k, world * k};
  const ExactEnding<Plain> ending = {y, nullptr, nullptr, nullptr, n, 0, 1.0, rows, n};
  multiply_exactly(of_x, of_w, 0, ending);
}

}  // namespace kiln
