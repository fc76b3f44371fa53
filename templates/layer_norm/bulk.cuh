// Blocks that stay, with their part of weight and bias, and take rows in turn. The copy engine brings rows while
// earlier ones are worked on.
#pragma once

#include "common/bulk_copy.cuh"
#include "common/dependent_launch.cuh"
#include "common/length.cuh"
#include "common/norm.cuh"

namespace kiln {

/// Rows of Threads * N * Items columns whose accesses are all aligned, Stages of them under way. Those to come are asked for once all
/// threads have read theirs, which the barrier of a row's mean tells.
///
/// Dynamic shared memory: Stages rows.
template <typename T, int Threads, int N, int Items, int Stages, quantise_mode Quantise>
class layer_norm_bulk_rows {
 public:
  using ring_type = bulk_ring<Stages>;
  struct storage {
    typename ring_type::storage ring;
    float sums[row_sum_scratch<Threads>];
  };

  __device__ __forceinline__ layer_norm_bulk_rows(const norm_tensors<T>& tensors, int rows, storage& shared)
      : tensors_(tensors), rows_(rows), ring_(shared.ring), sum_{shared.sums} {}

  __device__ __forceinline__ void run(float epsilon) {
    int row = blockIdx.x;
    if (threadIdx.x == 0) {
#pragma unroll 1
      for (int stage = 0; stage < Stages; ++stage) copy_row(stage, row + stage * gridDim.x);
    }
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      weights_[item] = chunk::load(tensors_.weight + column(item));
      biases_[item] = tensors_.bias != nullptr ? chunk::load(tensors_.bias + column(item)) : chunk::of(vec<float, N>{});
    }
    inverse_ = Quantise == quantise_mode::tensor ? reciprocal(*tensors_.y_scale) : 0.0f;
    launch_dependents();
    for (; row < rows_; row += gridDim.x) {
      ring_.wait();
      take_row(row, epsilon);
      ring_.advance();
    }
  }

 private:
  using chunk = words<T, N>;
  static constexpr int cols = Threads * N * Items;
  static constexpr float each = 1.0f / cols;
  static constexpr unsigned row_bytes = cols * sizeof(T);

  static __device__ __forceinline__ int column(int item) { return (item * Threads + threadIdx.x) * N; }
  static __device__ __forceinline__ T* staged_row(int stage) {
    extern __shared__ uint4 layer_norm_bulk_chunks[];
    return reinterpret_cast<T*>(layer_norm_bulk_chunks) + stage * cols;
  }

  __device__ __forceinline__ void copy_row(int stage, int row) {
    if (row >= rows_) return;
    const unsigned barrier = ring_.barrier(stage);
    mbarrier_arrive_expect_tx(barrier, row_bytes);
    bulk_load(shared_address(staged_row(stage)), tensors_.x + row * tensors_.x_row_stride, row_bytes, barrier);
  }

  __device__ __forceinline__ void take_row(int row, float epsilon) {
    const int stage = ring_.stage();
    vec<float, N> values[Items];
    float total = 0;
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      values[item] = chunk::load(staged_row(stage) + column(item)).floats();
      total += values[item].reduce(add{});
    }
    const float mean = sum_(total) * each;
    if (threadIdx.x == 0) copy_row(stage, row + Stages * gridDim.x);
    vec<float, 4> squares{};
#pragma unroll
    for (int item = 0; item < Items; ++item) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float& value = values[item].at[i];
        value -= mean;
        squares.at[i % 4] += value * value;
      }
    }
    const float scale = rsqrtf(sum_(squares.reduce(add{})) * each + epsilon);
    const norm_tensors<T> target = tensors_.from_row(row);
#pragma unroll
    for (int item = 0; item < Items; ++item) {
      const vec<float, N> factors = weights_[item].floats(), offsets = biases_[item].floats();
#pragma unroll
      for (int i = 0; i < N; ++i) values[item].at[i] = values[item].at[i] * scale * factors.at[i] + offsets.at[i];
      store_chunk(target, column(item), values[item]);
    }
  }

  __device__ __forceinline__ void store_chunk(const norm_tensors<T>& row, int first, const vec<float, N>& values) {
    if constexpr (Quantise == quantise_mode::none) {
      chunk::of(values).store(row.y + first);
    } else if constexpr (Quantise == quantise_mode::tensor) {
      store_packed<N>(row.y_quantised + first, quantise_packed(values, inverse_));
    } else {
      const block_scale own = shared_scale(values);
      if (first % quantise_block == 0) row.y_block_scales[first / quantise_block * row.block_scale_stride] = own.scale;
      store_packed<N>(row.y_quantised + first, quantise_packed(values, own.inverse));
    }
  }

  const norm_tensors<T>& tensors_;
  int rows_;
  ring_type ring_;
  row_sum<Threads> sum_;
  chunk weights_[Items];
  chunk biases_[Items];
  float inverse_;
};

/// Blocks: that a multiprocessor holds at once.
template <typename T, int Threads, int N, int Items, int Stages, int Blocks, quantise_mode Quantise>
__global__ __launch_bounds__(Threads, Blocks) void layer_norm_bulk(const T* x, const T* weight, const T* bias,
                                                                   const float* y_scale, T* y, e4m3* y_quantised,
                                                                   float* y_block_scales, axis_length rows_given,
                                                                   long long x_row_stride, long long y_row_stride,
                                                                   long long block_scale_row_stride,
                                                                   long long block_scale_stride, float epsilon) {
  using rows_of = layer_norm_bulk_rows<T, Threads, N, Items, Stages, Quantise>;
  __shared__ typename rows_of::storage shared;
  wait_for_predecessor();
  const int rows = rows_given.read();
  if (blockIdx.x >= rows) return;
  const norm_tensors<T> tensors{x,
                                nullptr,
                                weight,
                                bias,
                                y_scale,
                                nullptr,
                                y,
                                y_quantised,
                                y_block_scales,
                                x_row_stride,
                                0,
                                0,
                                y_row_stride,
                                block_scale_row_stride,
                                block_scale_stride};
  rows_of(tensors, rows, shared).run(epsilon);
}

}  // namespace kiln
