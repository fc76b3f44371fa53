// What rms_norm and layer_norm have in common, forward and backward: their tensors, a row's statistics, and sums over the threads that
// share a row.
#pragma once

#include "common/quantise.cuh"
#include "common/reduce.cuh"
#include "common/row.cuh"

namespace kiln {

enum class norm_kind { rms, layer };

/// In the words of the manifests' choice. `add`: x + residual is normalised, rounded to its type first. So the result
/// is that of the sum which is handed on, and a backward pass that starts from the sum sees the same numbers.
enum class residual_mode { none, add };

/// Strides in elements. Those that the choices leave out are not touched.
template <typename T>
struct norm_tensors {
  const T* x;
  const T* residual;
  const T* weight;
  const T* bias;  // null: none
  const float* y_scale;
  T* sum;
  T* y;
  e4m3* y_quantised;  // rows as far apart as y's
  float* y_block_scales;
  long long x_row_stride, residual_row_stride, sum_row_stride, y_row_stride, block_scale_row_stride, block_scale_stride;

  /// With row `row` as the first.
  __device__ __forceinline__ norm_tensors from_row(long long row) const {
    norm_tensors moved = *this;
    moved.x += row * x_row_stride;
    moved.residual += row * residual_row_stride;
    moved.sum += row * sum_row_stride;
    moved.y += row * y_row_stride;
    moved.y_quantised += row * y_row_stride;
    moved.y_block_scales += row * block_scale_row_stride;
    return moved;
  }
  /// With column `column` as the first: a multiple of 128 where blocks of 128 have scales.
  __device__ __forceinline__ norm_tensors from_column(int column) const {
    norm_tensors moved = *this;
    moved.x += column;
    moved.residual += column;
    moved.weight += column;
    if (bias != nullptr) moved.bias += column;
    moved.sum += column;
    moved.y += column;
    moved.y_quantised += column;
    moved.y_block_scales += column / quantise_block * block_scale_stride;
    return moved;
  }
};

/// Sums over the Threads threads that share a row, lanes of a warp or a whole block: each gets the sum. A block needs 2 * (Threads / 32)
/// elements of shared memory, two halves that successive sums take in turn.
template <int Threads, typename T = float>
struct row_sum {
  T* scratch;
  int half = 0;

  __device__ __forceinline__ T operator()(T mine) {
    if constexpr (Threads <= 32) {
      return warp_reduce<Threads>(mine, add{});
    } else {
      constexpr int warps = Threads / 32;
      T* const where = scratch + half * warps;
      half ^= 1;
      mine = warp_reduce(mine, add{});
      if (threadIdx.x % 32 == 0) where[threadIdx.x / 32] = mine;
      __syncthreads();
      return warp_reduce<warps>(where[threadIdx.x % warps], add{});
    }
  }
};
/// How many elements row_sum needs; an array of none is not allowed.
template <int Threads>
inline constexpr int row_sum_scratch = Threads <= 32 ? 1 : Threads / 16;

// What is added up over a row. Elements past its end are zeros in a share, which only some measures turn into zero.

struct element_itself {
  static constexpr bool zero_of_zero = true;
  template <typename T>
  __device__ __forceinline__ float operator()(T value) const {
    return to_float(value);
  }
};
struct element_squared {
  static constexpr bool zero_of_zero = true;
  template <typename T>
  __device__ __forceinline__ float operator()(T value) const {
    return to_float(value) * to_float(value);
  }
};
struct deviation_squared {
  static constexpr bool zero_of_zero = false;
  float mean;
  template <typename T>
  __device__ __forceinline__ float operator()(T value) const {
    const float deviation = to_float(value) - mean;
    return deviation * deviation;
  }
};

/// The sum of measure(element) over a share's elements that are the row's.
template <typename Share, typename Measure>
__device__ __forceinline__ float sum_within(const Share& share, int cols, int thread, int peel, Measure measure) {
  using T = typename Share::element;
  constexpr int n = Share::n;
  float total = thread < peel ? measure(share.front) : 0.0f;
#pragma unroll
  for (int item = 0; item < Share::items; ++item) {
    const int inside = cols - Share::column(thread, peel, item);
    vec<float, n> measured = unpack<T, n>(share.chunks[item]).template map<float>(measure);
    if (!Measure::zero_of_zero && inside < n) {
#pragma unroll
      for (int i = 0; i < n; ++i) measured.at[i] = i < inside ? measured.at[i] : 0.0f;
    }
    total += measured.reduce(add{});
  }
  return total;
}

/// value -> (value - mean) * scale; mean is 0 for rms_norm.
struct norm_statistics {
  float mean;
  float scale;
};

/// `measured(measure)` is this thread's sum of measure(element) over its part of the row, and may be asked for more than once. The mean
/// is known before deviations from it are squared, so that a mean that is far from 0 costs no digits.
template <norm_kind Kind, typename Measured, typename Sum>
__device__ __forceinline__ norm_statistics statistics_of(Measured& measured, Sum& sum, int cols, float epsilon) {
  const float count = static_cast<float>(cols);
  if constexpr (Kind == norm_kind::layer) {
    const float mean = sum(measured(element_itself{})) / count;
    return {mean, rsqrtf(sum(measured(deviation_squared{mean})) / count + epsilon)};
  } else {
    return {0, rsqrtf(sum(measured(element_squared{})) / count + epsilon)};
  }
}

}  // namespace kiln
